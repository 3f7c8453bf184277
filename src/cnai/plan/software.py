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
        kernels: Kernels that forward starts for one layer.
        stream_passes: Times that element-wise kernels of a layer's forward read or write the
            residual stream.
        inner_passes: The same for the inner width of the feed-forward part.
        gradient_bytes: Bytes of a gradient as it is sent.
        hides_gradients: Whether their exchange overlaps with backward.
        hides_tensor: Share of a tensor group's exchange that is meant to overlap.
        gathers_once: Whether full sharding fetches weights once a step, not once a microbatch.
        shards_optimizer: Whether the optimizer's state is shared out where weights are not.
        selective: What selective recomputing does again: `layers` (every second), `attention` (its
            core) or `half` (every second matrix product).
        sums_again: Exchanges of a tensor group that recomputing a layer repeats.
        pads_vocab: Multiple, beside the tensor size, to which the vocabulary is filled up.
        boundary_bytes: Bytes of an element that goes from stage to stage.
        scatters_boundary: Whether a tensor group sends only one copy of it.
        counts_twice: Whether its TFLOP/s count recomputed work.
    """

    name: str
    stores_scores: bool = False
    kernels: int = 18
    stream_passes: float = 9.0
    inner_passes: float = 4.0
    gradient_bytes: int = 4
    hides_gradients: bool = False
    hides_tensor: float = 0.0
    gathers_once: bool = False
    shards_optimizer: bool = False
    selective: str = "layers"
    sums_again: int = 1
    pads_vocab: int = 1
    counts_twice: bool = False
    boundary_bytes: int = 4
    scatters_boundary: bool = False


CNAI = Software(name="cnai")
