"""Bytes that a rank needs.

Activations follow Korthikanti et al. 2022, arXiv 2205.05198, section 4, taken anew for this
decoder: RMSNorm and SwiGLU, no dropout, nothing recomputed, and an attention kernel that keeps no
matrix of scores (one number a head and token instead). For one token, with width D, inner width F,
H heads of width K, G key-value heads, tensor-parallel size t and e bytes an element, a layer keeps

    residual stream before each of the two norms         2 D x 4    on every rank
    unscaled output of each norm, unless it is fused     2 D x 4    on every rank
    scaled output of each norm, read by the projections  2 D x e    on every rank
    queries, keys, values (widened to H heads), output   4 H K x e / t
    normed queries and keys, if the model has them       as those of a norm, / t
    gate, its SiLU, up, their product                    4 F x e / t
    log-sum of the scores                                H x 4 / t

The sequence is not split between the norms. In bfloat16 the residual stream stays float32 (under
full sharding it is bfloat16 too, which is not counted on) and a norm's output is cast once. The
output head's logits are gathered: one microbatch keeps them in e bytes and their log-probabilities
in 4, and backward adds their gradient in 4. What the allocator loses comes on top; the planner
keeps room for it.
"""

from __future__ import annotations

from cnai.core.adapters import Adapters
from cnai.core.layout import Memory, Sharding
from cnai.core.shape import DecoderShape
from cnai.plan.devices import Device
from cnai.plan.request import PlanRequest, Trial

FLOAT = 4
OPTIMIZER_BYTES = {"adamw": 8, "sgd": 0}
"""Bytes of optimizer state a parameter: AdamW keeps two float32 averages, plain SGD nothing."""


def in_flight(trial: Trial, stage: int) -> int:
    """Microbatches whose activations a stage holds at once.

    1F1B starts backward as soon as it can, so a stage holds as many as there are stages from it to
    the end; GPipe holds all. A single stage finishes each before the next. Source: Narayanan et
    al. 2021, arXiv 2104.04473, section 2.2.
    """
    stages = trial.layout.pipeline
    if stages == 1:
        return 1
    if trial.schedule == "GPipe":
        return trial.microbatches
    return min(stages - stage, trial.microbatches)


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
    the embedding; with more than one stage the last holds a copy of it.
    """
    layout, table = trial.layout, shape.embedding_parameters
    total = 0
    if stage == 0:
        total += table // (model_size if layout.is_split(0) else 1)
    if stage == layout.pipeline - 1:
        total += shape.width
        if not shape.tied_head:
            total += table // (model_size if layout.is_split(shape.layers - 1) else 1)
        elif layout.pipeline > 1:
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
    full = trial.sharding is Sharding.FULL and trial.layout.data > 1
    copies = trial.layout.data if full else 1
    kept, changed = -(-held // copies), -(-trained // copies)
    gathered = _gathered_parameters(shape, trial, stage) if full else 0
    whole = _gathered_gradients(trial, trained, min(gathered, trained))
    return Memory(
        weight_bytes=_weight_bytes(request, kept, gathered, full=full),
        gradient_bytes=FLOAT * (changed + whole),
        optimizer_bytes=OPTIMIZER_BYTES[request.optimizer] * changed,
        activation_bytes=activation_bytes(request, trial, stage, device),
        overhead_bytes=device.overhead_bytes,
    )


def adapter_parameters(adapters: Adapters, shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters of the adapters that one rank of a stage holds."""
    split = trial.split_layers(stage)
    whole = trial.layers(stage) - split
    one, part = (adapters.layer_parameters(shape, size) for size in (1, trial.layout.model))
    return whole * one + split * part


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
    element = _element_bytes(request)
    if full:
        return FLOAT * kept + element * gathered
    return FLOAT * kept + (element * kept if element < FLOAT else 0)


def _gathered_parameters(shape: DecoderShape, trial: Trial, stage: int) -> int:
    """Parameters that stand whole on a rank while full sharding computes.

    Two layers, the one at work and the one fetched ahead, with embedding and head, which stay.
    """
    size = trial.layout.model
    layer = shape.layer_parameters
    if trial.split_layers(stage) == trial.layers(stage):
        layer = layer_share(shape, size)
    edges = edge_parameters(shape, trial, stage, size)
    return min(2, trial.layers(stage)) * layer + edges


def activation_bytes(request: PlanRequest, trial: Trial, stage: int, device: Device) -> int:
    """Bytes kept for backward by all microbatches in flight, with the pipeline's buffers."""
    shape = request.shape
    if shape is None:
        return 0
    tokens = trial.rows * request.sequence
    element, held = _element_bytes(request), in_flight(trial, stage)
    split = trial.split_layers(stage)
    whole = trial.layers(stage) - split
    per_token = split * layer_activation_bytes(shape, trial.layout.model, element, device)
    per_token += whole * layer_activation_bytes(shape, 1, element, device)
    extra = 0
    if stage == trial.layout.pipeline - 1:
        norm = FLOAT + element + (0 if device.fused_norm else FLOAT)
        per_token += norm * shape.width + (element + FLOAT) * shape.vocab
        extra += FLOAT * shape.vocab
    # torch.distributed.pipelining allocates, before the first step, what a stage receives from
    # each neighbour for every microbatch; with many microbatches this outgrows all else.
    neighbours = (stage > 0) + (stage < trial.layout.pipeline - 1)
    extra += neighbours * trial.microbatches * FLOAT * shape.width
    return tokens * (held * per_token + extra)


def layer_activation_bytes(
    shape: DecoderShape, model_size: int, element: int, device: Device
) -> int:
    """Bytes that a layer keeps for one token; the table at the head of this page."""
    norm = FLOAT + element + (0 if device.fused_norm else FLOAT)
    split = 4 * (shape.query_width + shape.ffn_width) * element + FLOAT * shape.heads
    if shape.qk_norm:
        split += norm * (shape.query_width + shape.kv_width)
    return 2 * norm * shape.width + split // model_size


def _element_bytes(request: PlanRequest) -> int:
    return 2 if request.precision == "bfloat16" else FLOAT
