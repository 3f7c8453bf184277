"""The section `parallel` of the spec: how the model lies over ranks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cnai.core.spec.section import LARGEST_INT, Positive, Section


class DataParallel(Section):
    """Copies of the model that each take a share of the batch."""

    size: Positive | None = None
    """Copies; none = chosen by the planner."""
    sharding: Literal["auto", "none", "hybrid", "full"] = "auto"
    """Whether the copies share out the parameters (`full`, FSDP), do so in groups (`hybrid`), or
    each hold all (`none`); `auto` = `none` where it fits the memory, else `full`."""
    shard_group: Positive | None = None
    """Copies in a group of hybrid sharding; none = as many as one machine holds."""


class ModelParallel(Section):
    """Ranks over which the weights of one layer are split (tensor parallelism)."""

    size: Positive | None = None
    """Ranks in a group; none = chosen by the planner."""
    split_layer: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Index of the first transformer layer whose weights are split over the group; layers before
    it are replicated inside the group. 0 = all layers are split."""
    sequence: bool = False
    """Whether the group also shares out the positions of the residual stream between the split
    matrices (sequence parallelism): less memory for activations, as many bytes sent."""


class ContextParallel(Section):
    """Ranks that share out the positions of the same sequences (context parallelism)."""

    size: Positive = 1
    """Ranks that each take a part of the positions through the whole model and exchange them for
    heads in attention; must divide the sequence and the heads of a model-parallel rank."""


class ExpertParallel(Section):
    """Ranks that share out the experts of a mixture (expert parallelism)."""

    size: Positive = 1
    """Ranks over which the experts of a layer are spread; tokens travel to them. They are ranks of
    the data and context axes, so this makes no more ranks; it must divide data x context and the
    number of experts."""


class PipelineParallel(Section):
    """Stages into which the layers are cut."""

    stages: Positive | None = None
    """Ranks in the pipeline, each with one stage, or with `virtual` of them; none = chosen by the
    planner."""
    schedule: Literal[
        "1F1B",
        "GPipe",
        "Interleaved1F1B",
        "LoopedBFS",
        "InterleavedZeroBubble",
        "ZBVZeroBubble",
        "DualPipeV",
    ] = "1F1B"
    """Order of forward and backward passes. With several stages a rank there is less idle time;
    the last three compute the gradients of the weights when they would else idle."""
    virtual: Positive | None = None
    """Stages a rank; none = 1, or 2 where the schedule needs them."""
    microbatches: Positive | None = None
    """Pieces into which a rank's share of the batch is cut; none = chosen by the planner."""


class Parallel(Section):
    """How the model lies over ranks. Their number is data x model x pipeline x context."""

    data_parallel: DataParallel = DataParallel()
    model_parallel: ModelParallel = ModelParallel()
    context_parallel: ContextParallel = ContextParallel()
    expert_parallel: ExpertParallel = ExpertParallel()
    pipeline_parallel: PipelineParallel = PipelineParallel()
