"""Bytes that a rank needs: weights, gradients, optimizer, and the activations."""

from __future__ import annotations

from cnai.core.adapters import Adapters
from cnai.core.layout import Memory
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.plan.activations import FLOAT, activation_bytes
from cnai.plan.devices import Device
from cnai.plan.request import PlanRequest, Trial

OPTIMIZER_BYTES = {"adamw": 8, "muon": 4, "sgd": 0}
"""Bytes of optimizer state a parameter: AdamW keeps two float32 averages, Muon one (of a matrix in
a layer; the rest is AdamW's), plain SGD nothing."""


def stage_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of a stage before any split, with its own copy of a tied head."""
    return _parameters(shape, trial, stage, model_size=1)


def rank_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters that one rank of a stage holds before sharding over the data axis."""
    return _parameters(shape, trial, stage, model_size=trial.layout.model)


def _parameters(shape: DecoderShape, trial: Trial, stage: int, *, model_size: int) -> int:
    split = trial.split_layers(stage)
    whole = trial.layers(stage) - split
    total = whole * shape.layer_parameters + split * layer_share(shape, model_size)
    return total + edge_parameters(shape, trial, stage, model_size)


def layer_share(shape: DecoderShape, model_size: int) -> int:
    """Parameters of a split layer on one rank; the norms are on every rank."""
    return (shape.layer_parameters - shape.norm_parameters) // model_size + shape.norm_parameters


def edge_parameters(shape: DecoderShape, trial: Trial, stage: int, model_size: int) -> int:
    """Embedding of the first stage, final norm and head of the last, on one rank.

    The embedding is split with layer 0 and an untied head with the last layer. A tied head follows
    the embedding; where another rank owns the last stage, that holds a copy of it.
    """
    layout, table = trial.layout, shape.embedding_parameters
    total = 0
    if stage == 0:
        total += table // (model_size if layout.is_split(0) else 1)
    if stage == trial.last:
        total += shape.width
        if not shape.tied_head:
            total += table // (model_size if layout.is_split(shape.layers - 1) else 1)
        elif trial.owner(stage) != trial.owner(0):
            total += table // (model_size if layout.is_split(0) else 1)
    return total


def stage_memory(request: PlanRequest, trial: Trial, stage: int, device: Device) -> Memory:
    """Estimate the bytes of one rank of a stage; without a shape only the overhead is known."""
    shape = request.shape
    if shape is None:
        return Memory(
            weight_bytes=0,
            gradient_bytes=0,
            optimizer_bytes=0,
            activation_bytes=0,
            overhead_bytes=device.overhead_bytes,
        )
    held = rank_parameters(shape, trial, stage)
    trained = held
    if request.adapters is not None:
        trained = adapter_parameters(request.adapters, shape, trial, stage)
        held += trained
    full = trial.shards > 1
    table = _whole_table(shape, trial, stage) if full else held
    kept = table + -(-(held - table) // trial.shards)
    changed = kept if request.adapters is None else -(-trained // trial.shards)
    gathered = _gathered_parameters(shape, trial, stage) if full else 0
    whole = _gathered_gradients(trial, trained, min(gathered, trained))
    return Memory(
        weight_bytes=_weight_bytes(request, kept, gathered, full=full),
        gradient_bytes=FLOAT * (changed + whole),
        optimizer_bytes=_optimizer_bytes(request, trial, stage, changed),
        activation_bytes=activation_bytes(request, trial, stage, device),
        overhead_bytes=device.overhead_bytes,
    )


def _optimizer_bytes(request: PlanRequest, trial: Trial, stage: int, changed: int) -> int:
    """State for the parameters that a rank trains; Muon leaves embedding, norms and head to AdamW.

    The norms and biases of the layers, a thousandth, are counted as Muon's.
    """
    state = OPTIMIZER_BYTES[request.optimizer] * changed
    if request.optimizer == "muon" and request.shape is not None and request.adapters is None:
        edges = edge_parameters(request.shape, trial, stage, trial.layout.model)
        state += 4 * edges // trial.shards
    return state


def adapter_parameters(adapters: Adapters, shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of the adapters that one rank of a stage holds."""
    split = trial.split_layers(stage)
    whole = trial.layers(stage) - split
    one, part = (adapters.layer_parameters(shape, size) for size in (1, trial.layout.model))
    return whole * one + split * part


def _whole_table(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of an embedding that two stages of a rank share, which is never sharded."""
    shared = shape.tied_head and trial.last > 0 and trial.owner(trial.last) == trial.owner(0)
    if stage or not shared:
        return 0
    return edge_parameters(shape, trial, stage, trial.layout.model)


def _gathered_gradients(trial: Trial, held: int, gathered: int) -> int:
    """Gradients that stand whole beside the kept ones under full sharding.

    Without a pipeline they are scattered after every microbatch, a layer at a time; the schedules
    of torch.distributed.pipelining scatter once, after the last.
    """
    if not gathered:
        return 0
    return held if trial.layout.pipeline > 1 else gathered // 2


def _weight_bytes(request: PlanRequest, kept: int, gathered: int, *, full: bool) -> int:
    """Float32 weights, and the copies in which the matrix products read them."""
    element = request.element_bytes
    if full:
        return FLOAT * kept + element * gathered
    return FLOAT * kept + (element * kept if element < FLOAT else 0)


def _gathered_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters that stand whole on a rank while full sharding computes.

    Two layers, the one at work and the one fetched ahead, with embedding and head, which stay. A
    schedule that splits the backward pass keeps all of its layers until the step is over.
    """
    size = trial.layout.model
    if trial.layout.pipeline > 1 and schedule_named(trial.schedule).splits_backward:
        return rank_parameters(shape, trial, stage) - _whole_table(shape, trial, stage)
    layer = shape.layer_parameters
    if trial.split_layers(stage) == trial.layers(stage):
        layer = layer_share(shape, size)
    edges = edge_parameters(shape, trial, stage, size)
    return min(2, trial.layers(stage)) * layer + edges
