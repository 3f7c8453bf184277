"""What a training program does that its layout does not say.

A plan for cnai's own runtime uses `CNAI`. The others describe the programs of published
measurements, from their papers and documentation, so that the one model of cost can be held
against them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """A training program, as far as memory and time depend on it.

    Attributes:
        stores_scores: Attention writes its matrix of scores to memory instead of fusing.
        attention: Rate of its fused attention, against the fastest kernels known.
        kernels: Kernels that forward starts for one layer.
        stream_passes: Times that element-wise kernels of a layer's forward read or write the
            residual stream.
        inner_passes: The same for the inner width of the feed-forward part.
        gradient_bytes: Bytes of a gradient as it is sent.
        hides_gradients: Whether their exchange overlaps with backward.
        hides_tensor: Share of a tensor group's exchange that is meant to overlap.
        shards_optimizer: Whether the optimizer's state is shared out where weights are not.
        selective: What selective recomputing does again: `layers` (every second), `attention` (its
            core) or `half` (every second matrix product).
        sums_again: Exchanges of a tensor group that recomputing a layer repeats.
        boundary_bytes: Bytes of an element that goes from stage to stage.
        scatters_boundary: Whether a tensor group sends only one copy of it.
        counts_twice: Whether its TFLOP/s count recomputed work.
        stream_bytes: Bytes of an element of the residual stream that is kept for backward.
        widens_kv: Whether keys and values are kept for each head of the queries.
        keeps_masks: Whether dropout keeps a mask, one byte an element, after each half of a layer.
        shares_reads: Whether a tensor group that shares out the residual stream also shares out
            what the projections read, and gathers it again in backward.
        splits_logits: Whether a tensor group keeps the logits split.
        logit_bytes: Bytes for a logit and its gradient; None = the element, its probability and
            the gradient of that in float32.
        kept_gradient_bytes: Bytes of a gradient that is kept until the update.
        receives_ahead: Whether a stage allocates what it receives for all microbatches at once.
        overhead_gib: Memory for buffers of its own, beside the device's overhead.
    """

    name: str
    stores_scores: bool = False
    attention: float = 1.0
    kernels: int = 18
    stream_passes: float = 9.0
    inner_passes: float = 4.0
    gradient_bytes: int = 4
    hides_gradients: bool = False
    hides_tensor: float = 0.0
    shards_optimizer: bool = False
    selective: str = "layers"
    sums_again: int = 1
    counts_twice: bool = False
    stream_bytes: int = 4
    widens_kv: bool = True
    keeps_masks: bool = False
    shares_reads: bool = False
    splits_logits: bool = False
    logit_bytes: int | None = None
    kept_gradient_bytes: int = 4
    receives_ahead: bool = True
    overhead_gib: float = 0.0
    boundary_bytes: int = 4
    scatters_boundary: bool = False


CNAI = Software(name="cnai")
