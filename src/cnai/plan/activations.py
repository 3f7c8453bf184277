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

Other programs differ in what `Software` says: half precision in the residual stream, masks of
dropout, scores that are stored (5 bytes for each of H scores a token and position: softmax,
its dropout, a mask), logits that stay split. Without a gate the third line but one is 2 F x e / t.

In bfloat16 the residual stream stays float32 (under full sharding it is bfloat16 too, which is not
counted on) and a norm's output is cast once. The output head's logits are gathered: one microbatch
keeps them in e bytes and their log-probabilities in 4, and backward adds their gradient in 4. What
the allocator loses comes on top; the planner keeps room for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.recompute import Recompute
from cnai.core.shape import DecoderShape
from cnai.plan.devices import Device
from cnai.plan.pipeline import in_flight
from cnai.plan.request import PlanRequest, Trial
from cnai.plan.software import CNAI, Software

FLOAT = 4
_CHOICE = 36
"""Bytes that one choice of an expert keeps: its number, place and token, and its weight thrice."""
_SCORE = 5


def activation_bytes(request: PlanRequest, trial: Trial, stage: int, device: Device) -> int:
    """Bytes kept for backward by all microbatches in flight, with the pipeline's buffers."""
    shape, software = request.shape, request.software
    if shape is None:
        return 0
    tokens = trial.tokens(request.sequence)
    per_token, extra = _layers(request, shape, trial, stage, device)
    if stage == trial.last:
        norm = software.stream_bytes + request.element_bytes
        norm += 0 if device.fused_norm else FLOAT
        logits = shape.vocab
        if software.splits_logits and trial.layout.is_split(shape.layers - 1):
            logits //= trial.layout.model
        per_token += norm * shape.width
        each = software.logit_bytes
        per_token += (request.element_bytes + FLOAT if each is None else each) * logits
        extra += FLOAT * logits if each is None else 0
    # torch.distributed.pipelining allocates, before the first step, what a stage receives from
    # each neighbour for every microbatch; with many microbatches this outgrows all else.
    neighbours = (stage > 0) + (stage < trial.last)
    pieces = trial.microbatches if software.receives_ahead else 1
    extra += neighbours * pieces * software.boundary_bytes * shape.width
    return tokens * (in_flight(trial, stage) * per_token + extra)


def _layers(
    request: PlanRequest, shape: DecoderShape, trial: Trial, stage: int, device: Device
) -> tuple[int, int]:
    """Return the bytes of a token that each microbatch keeps, and those of a layer done again."""
    layout, mode = trial.layout, Recompute(request.recompute)
    known: dict[tuple[bool, bool], LayerKeeps] = {}
    kept = again = 0
    for layer in range(*trial.cuts[stage]):
        kind = (layout.is_split(layer), shape.is_sparse(layer))
        if kind not in known:
            known[kind] = LayerKeeps(
                shape=shape,
                split=layout.model if kind[0] else 1,
                element=request.element_bytes,
                fused_norm=device.fused_norm,
                shares_stream=layout.split_sequence and kind[0],
                exchanged=layout.context > 1,
                sparse=kind[1],
                software=request.software,
                keys=request.sequence,
            )
        now, later = known[kind].under(mode, covered=mode.covers(layer))
        kept += now
        again = max(again, later)
    return kept, again


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKeeps:
    """What a layer keeps for one token; the table at the head of this page.

    Attributes:
        split: Ranks over which its matrices are split.
        element: Bytes of a number in the products.
        shares_stream: Whether they share out the residual stream.
        exchanged: Whether positions are exchanged for heads.
        keys: Positions that a token may attend to; only where scores are stored.
    """

    shape: DecoderShape
    split: int
    element: int
    fused_norm: bool
    shares_stream: bool = False
    exchanged: bool = False
    sparse: bool = False
    software: Software = CNAI
    keys: int = 0

    @property
    def input_bytes(self) -> int:
        """What is left when all of it is computed again."""
        return self.software.stream_bytes * self.shape.width // self._shares

    @property
    def _shares(self) -> int:
        return self.split if self.shares_stream else 1

    @property
    def score_bytes(self) -> int:
        """What stored scores keep; none of it where attention is fused."""
        if not self.software.stores_scores:
            return 0
        return _SCORE * self.shape.heads * self.keys // self.split

    @property
    def total_bytes(self) -> int:
        """All that is kept when nothing is computed again."""
        shape, element, software = self.shape, self.element, self.software
        norm = software.stream_bytes + (0 if self.fused_norm else FLOAT)
        stream = 2 * (norm + software.keeps_masks) * shape.width
        read = 2 * element * shape.width
        inner = shape.experts_per_token * shape.expert_width if self.sparse else shape.ffn_width
        inner *= 4 if getattr(shape, "gated", True) else 2
        attended = 2 * shape.query_width
        attended += 2 * (shape.query_width if software.widens_kv else shape.kv_width)
        split = (attended + inner) * element + FLOAT * shape.heads
        if self.sparse:
            read += (
                shape.experts_per_token * (2 * element * shape.width + _CHOICE)
                + FLOAT * shape.experts
            )
        if self.exchanged:
            split += shape.query_width * element
        if shape.qk_norm:
            norm = FLOAT + element + (0 if self.fused_norm else FLOAT)
            split += norm * (shape.query_width + shape.kv_width)
        shared_read = self._shares if software.shares_reads else 1
        whole = stream // self._shares + read // shared_read
        return whole + split // self.split + self.score_bytes

    @property
    def _half_bytes(self) -> int:
        """What is left when every second product is done again: the others, attention's result."""
        shape = self.shape
        inner = shape.experts_per_token * shape.expert_width if self.sparse else shape.ffn_width
        outputs = shape.query_width + 2 * shape.kv_width + 2 * shape.width + 2 * inner
        kept = (shape.query_width + outputs // 2) * self.element // self.split
        return min(self.input_bytes + kept, self.total_bytes)

    def under(self, mode: Recompute, *, covered: bool) -> tuple[int, int]:
        """Return what each microbatch keeps, and what one layer needs when it is done again."""
        what, total = self.software.selective, self.total_bytes
        if mode is Recompute.SELECTIVE and what == "attention":
            return total - self.score_bytes, self.score_bytes
        if mode is Recompute.SELECTIVE and what == "half":
            return self._half_bytes, total - self._half_bytes
        return (self.input_bytes, total) if covered else (total, 0)


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
    """Bytes that a layer of the runtime's own decoder keeps for one token."""
    return LayerKeeps(
        shape=shape,
        split=model_size,
        element=element,
        fused_norm=device.fused_norm,
        shares_stream=split_sequence,
        exchanged=exchanged,
        sparse=sparse,
    ).total_bytes
