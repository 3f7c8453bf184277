"""Bytes that forward keeps for backward.

They follow Korthikanti et al. 2022, arXiv 2205.05198, section 4, taken anew for this decoder:
RMSNorm and SwiGLU, no dropout, and an attention kernel that keeps no matrix of scores (one number
a head and token instead). For one token, with width D, inner width F, H heads of width K,
tensor-parallel size t and e bytes an element, a layer keeps

    residual stream before each of the two norms         2 D x 4    on every rank
    unscaled output of each norm, unless it is fused     2 D x 4    on every rank
    scaled output of each norm, read by the projections  2 D x e    on every rank
    queries, keys, values (widened to H heads), output   4 H K x e / t
    normed queries and keys, if the model has them       as those of a norm, / t
    gate, its SiLU, up, their product                    4 F x e / t
    log-sum of the scores                                H x 4 / t

Where positions are exchanged for heads (context parallelism) the output is kept twice, by attention
and after the exchange by the projection; all counts for the positions that a rank has.

A layer with E experts, of which a token goes through C, has C times the inner width of an expert
for F, and keeps on every rank

    rows before and after the experts                    2 C D x e
    probabilities of the router, the choices             E x 4 + C x 36

With `split_sequence` the first two lines are divided by t as well. The third is not: it is gathered
for the projections, and kept gathered instead of being sent twice. A layer that is recomputed keeps
the first half of the first line, its input; one such layer at a time holds all of it again.

In bfloat16 the residual stream stays float32 (under full sharding it is bfloat16 too, which is not
counted on) and a norm's output is cast once. The output head's logits are gathered: one microbatch
keeps them in e bytes and their log-probabilities in 4, and backward adds their gradient in 4. What
the allocator loses comes on top; the planner keeps room for it.
"""

from __future__ import annotations

from cnai.core.recompute import Recompute
from cnai.core.shape import DecoderShape
from cnai.plan.devices import Device
from cnai.plan.pipeline import in_flight
from cnai.plan.request import PlanRequest, Trial

FLOAT = 4
_CHOICE = 36
"""Bytes that one choice of an expert keeps: its number, place and token, and its weight thrice."""


def activation_bytes(request: PlanRequest, trial: Trial, stage: int, device: Device) -> int:
    """Bytes kept for backward by all microbatches in flight, with the pipeline's buffers."""
    shape = request.shape
    if shape is None:
        return 0
    tokens = trial.tokens(request.sequence)
    per_token, extra = _layers(request, shape, trial, stage, device)
    if stage == trial.last:
        norm = FLOAT + request.element_bytes + (0 if device.fused_norm else FLOAT)
        per_token += norm * shape.width + (request.element_bytes + FLOAT) * shape.vocab
        extra += FLOAT * shape.vocab
    # torch.distributed.pipelining allocates, before the first step, what a stage receives from
    # each neighbour for every microbatch; with many microbatches this outgrows all else.
    neighbours = (stage > 0) + (stage < trial.last)
    extra += neighbours * trial.microbatches * FLOAT * shape.width
    return tokens * (in_flight(trial, stage) * per_token + extra)


def _layers(
    request: PlanRequest, shape: DecoderShape, trial: Trial, stage: int, device: Device
) -> tuple[int, int]:
    """Return the bytes of a token that each microbatch keeps, and those of a layer done again."""
    layout, mode = trial.layout, Recompute(request.recompute)
    kept = again = 0
    for layer in range(*trial.cuts[stage]):
        size = layout.model if layout.is_split(layer) else 1
        sequence = layout.split_sequence and size > 1
        held = layer_activation_bytes(
            shape,
            size,
            request.element_bytes,
            device,
            split_sequence=sequence,
            exchanged=layout.context > 1,
            sparse=shape.is_sparse(layer),
        )
        if mode.covers(layer):
            kept += FLOAT * shape.width // (size if sequence else 1)
            again = max(again, held)
        else:
            kept += held
    return kept, again


def layer_activation_bytes(
    shape: DecoderShape,
    model_size: int,
    element: int,
    device: Device,
    *,
    split_sequence: bool = False,
    exchanged: bool = False,
    sparse: bool = False,
) -> int:
    """Bytes that a layer keeps for one token; the table at the head of this page."""
    stream = 2 * (FLOAT + (0 if device.fused_norm else FLOAT)) * shape.width
    read = 2 * element * shape.width
    inner = shape.experts_per_token * shape.expert_width if sparse else shape.ffn_width
    split = 4 * (shape.query_width + inner) * element + FLOAT * shape.heads
    if sparse:
        read += (
            shape.experts_per_token * (2 * element * shape.width + _CHOICE) + FLOAT * shape.experts
        )
    if exchanged:
        split += shape.query_width * element
    if shape.qk_norm:
        norm = FLOAT + element + (0 if device.fused_norm else FLOAT)
        split += norm * (shape.query_width + shape.kv_width)
    return stream // (model_size if split_sequence else 1) + read + split // model_size
