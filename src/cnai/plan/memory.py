"""Bytes that a rank needs: weights, gradients, optimizer, and the activations."""

from __future__ import annotations

from cnai.core.adapters import Adapters
from cnai.core.layout import Memory
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.plan.activations import FLOAT, activation_bytes
from cnai.plan.devices import Device
from cnai.plan.pipeline import in_flight
from cnai.plan.request import PlanRequest, Trial

OPTIMIZER_BYTES = {"adamw": 8, "muon": 4, "sgd": 0}
"""Bytes of optimizer state a parameter: AdamW keeps two float32 averages, Muon one (of a matrix in
a layer; the rest is AdamW's), plain SGD nothing."""


def stage_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of a stage before any split, with its own copy of a tied head."""
    held = sum(shape.parameters_of(layer) for layer in range(*trial.cuts[stage]))
    return held + edge_parameters(shape, trial, stage, 1)


def rank_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters that one rank of a stage holds before sharding over the data axis."""
    layout = trial.layout
    held = sum(
        layer_share(shape, layer, layout.model if layout.is_split(layer) else 1, layout.expert)
        for layer in range(*trial.cuts[stage])
    )
    return held + edge_parameters(shape, trial, stage, layout.model)


def layer_share(shape: DecoderShape, layer: int, model_size: int, expert_size: int = 1) -> int:
    """Parameters of a layer on one rank; norms and router are on every rank."""
    whole = shape.norm_parameters + (shape.router_parameters if shape.is_sparse(layer) else 0)
    experts = shape.experts * shape.expert_parameters if shape.is_sparse(layer) else 0
    rest = shape.parameters_of(layer) - whole - experts
    return whole + rest // model_size + experts // model_size // expert_size


def spread_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of spread experts that one rank of a stage holds before sharding."""
    layout = trial.layout
    if layout.expert == 1:
        return 0
    held = sum(_split_experts(shape, trial, layer) for layer in range(*trial.cuts[stage]))
    return held // layout.expert


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
    spread = spread_parameters(shape, trial, stage)
    table = spread + _whole_table(shape, trial, stage) if full else held
    kept = table + -(-(held - table) // trial.shards)
    kept -= spread - -(-spread // trial.expert_shards(shape.width))
    changed = kept if request.adapters is None else -(-trained // trial.shards)
    gathered = _gathered_parameters(shape, trial, stage) if full else 0
    if trial.expert_shards(shape.width) == 1:
        trained -= min(spread, trained)
    whole = _gathered_gradients(trial, trained, min(gathered, trained))
    software = request.software
    weights = _weight_bytes(request, kept, gathered, full=full)
    optimizer = _optimizer_bytes(request, trial, stage, changed)
    if software.shards_optimizer and not full:
        copies = trial.layout.copies
        weights = request.element_bytes * kept + -(-FLOAT * kept // copies)
        optimizer = -(-optimizer // copies)
    return Memory(
        weight_bytes=weights + _expert_copies(request, trial, stage),
        gradient_bytes=software.kept_gradient_bytes * changed + FLOAT * whole,
        optimizer_bytes=optimizer,
        activation_bytes=activation_bytes(request, trial, stage, device),
        overhead_bytes=device.overhead_bytes + int(software.overhead_gib * 2**30),
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


def _expert_copies(request: PlanRequest, trial: Trial, stage: int) -> int:
    """Half-precision copies of the experts, which each microbatch makes and keeps for backward.

    Parameters that full sharding gathers come in half precision already. One copy of all that is
    not sharded is counted before.
    """
    shape, element = request.shape, request.element_bytes
    if shape is None or element == FLOAT:
        return 0
    held = sum(_split_experts(shape, trial, layer) for layer in range(*trial.cuts[stage]))
    held //= trial.layout.expert
    if trial.shards > 1:
        gathered = trial.layout.expert == 1 or trial.expert_shards(shape.width) > 1
        return 0 if gathered else element * held * in_flight(trial, stage)
    return element * held * (in_flight(trial, stage) - 1)


def _gathered_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters that stand whole on a rank while full sharding computes.

    Two layers, the one at work and the one fetched ahead, with embedding and head, which stay. A
    schedule that splits the backward pass keeps all of its layers until the step is over.
    """
    layout = trial.layout
    size, alone = layout.model, trial.expert_shards(shape.width) == 1
    spread = spread_parameters(shape, trial, stage) if alone else 0
    if layout.pipeline > 1 and schedule_named(trial.schedule).splits_backward:
        return rank_parameters(shape, trial, stage) - spread - _whole_table(shape, trial, stage)
    layer = max(
        layer_share(shape, one, size if layout.is_split(one) else 1, layout.expert)
        - (_split_experts(shape, trial, one) // layout.expert if layout.expert > 1 and alone else 0)
        for one in range(*trial.cuts[stage])
    )
    edges = edge_parameters(shape, trial, stage, size)
    return min(2, trial.layers(stage)) * layer + edges


def _split_experts(shape: DecoderShape, trial: Trial, layer: int) -> int:
    """Parameters of all experts of a layer, as the model axis splits them."""
    if not shape.is_sparse(layer):
        return 0
    size = trial.layout.model if trial.layout.is_split(layer) else 1
    return shape.experts * shape.expert_parameters // size
