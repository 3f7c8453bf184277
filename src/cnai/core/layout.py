"""How a model lies over ranks: the layout asked for, and the plan made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from cnai.core.estimate import StepEstimate
from cnai.core.records import encode
from cnai.core.schedules import schedule_named


class Sharding(StrEnum):
    """What the ranks that hold copies of the model keep of the parameters they share."""

    NONE = "none"
    HYBRID = "hybrid"
    FULL = "full"

    def ranks(self, copies: int, group: int) -> int:
        """Return over how many of the copies a parameter is shared out."""
        return {Sharding.NONE: 1, Sharding.HYBRID: group, Sharding.FULL: copies}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank's coordinates in the mesh (pipeline, data, context, model)."""

    rank: int
    pipeline: int
    data: int
    model: int
    context: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the parallel axes.

    Ranks are numbered with the model axis innermost, because its members talk most, the context
    axis around it, and the pipeline axis outermost:
    `rank = ((pipeline * data_size + data) * context_size + context) * model_size + model`.

    Attributes:
        data: Copies of the model that each take a share of every batch.
        model: Ranks over which one layer's weights are split (tensor parallelism).
        pipeline: Ranks over which the layers are laid; each owns one stage, or several.
        split_layer: Index of the first transformer layer whose weights are split over the model
            axis; earlier layers are replicated inside it. The embedding goes with layer 0 and an
            untied head with the last layer.
        split_sequence: Whether the model axis also shares out the positions of the residual stream
            between split layers (sequence parallelism).
        context: Ranks that each take a part of the positions of the same sequences through the
            whole model, and exchange them for heads in attention (context parallelism).
        expert: Ranks over which the experts of a layer are spread (expert parallelism). They are
            neighbours among the ranks of the data and context axes, so there are no more ranks.
    """

    data: int = 1
    model: int = 1
    pipeline: int = 1
    split_layer: int = 0
    split_sequence: bool = False
    context: int = 1
    expert: int = 1

    @property
    def copies(self) -> int:
        """Ranks that hold the same weights and average their gradients: data x context."""
        return self.data * self.context

    @property
    def expert_copies(self) -> int:
        """Ranks that hold the same experts."""
        return self.copies // self.expert

    def expert_shards(self, sharding: Sharding, width: int) -> int:
        """Return over how many of those the numbers of spread experts are shared out.

        Full sharding does so where the model's width divides; else each holds all.
        """
        spread = self.expert > 1 and sharding is Sharding.FULL
        return self.expert_copies if spread and width % self.expert_copies == 0 else 1

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.copies * self.model * self.pipeline

    def place(self, rank: int) -> Place:
        """Return the coordinates of a rank."""
        rest, model = divmod(rank, self.model)
        rest, context = divmod(rest, self.context)
        pipeline, data = divmod(rest, self.data)
        return Place(rank=rank, pipeline=pipeline, data=data, model=model, context=context)

    def places(self) -> Iterator[Place]:
        """Yield the coordinates of every rank."""
        return (self.place(rank) for rank in range(self.ranks))

    def is_split(self, layer: int) -> bool:
        """Tell whether a layer's weights are split over the model axis."""
        return self.model > 1 and layer >= self.split_layer

    def __str__(self) -> str:
        context = f" x cp{self.context}" if self.context > 1 else ""
        expert = f", ep{self.expert}" if self.expert > 1 else ""
        return f"dp{self.data} x tp{self.model} x pp{self.pipeline}{context}{expert}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one rank needs, by what they hold."""

    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    overhead_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum."""
        return (
            self.weight_bytes
            + self.gradient_bytes
            + self.optimizer_bytes
            + self.activation_bytes
            + self.overhead_bytes
        )

    def beside(self, other: Memory) -> Memory:
        """Return what a rank needs for two stages; the overhead is there once."""
        return Memory(
            weight_bytes=self.weight_bytes + other.weight_bytes,
            gradient_bytes=self.gradient_bytes + other.gradient_bytes,
            optimizer_bytes=self.optimizer_bytes + other.optimizer_bytes,
            activation_bytes=self.activation_bytes + other.activation_bytes,
            overhead_bytes=max(self.overhead_bytes, other.overhead_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: layers `first_layer` up to but not including `end_layer`.

    Attributes:
        parameters: Parameters of the stage before any split; stage 0 holds the embedding and the
            last stage the final norm and head (its own copy of a tied one).
        memory: Estimate of what this stage takes on one of its ranks.
    """

    index: int
    first_layer: int
    end_layer: int
    parameters: int
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fullest ranks of a plan.

    Attributes:
        pipeline: Their place in the pipeline.
        stages: The stages that they own.
        memory: What one of them needs.
    """

    pipeline: int
    stages: tuple[int, ...]
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """A layout with everything that the runtime needs to build it.

    Attributes:
        stages: In the order of the layers, `virtual` for each rank of the pipeline.
        microbatches: Pieces into which a rank's share of the batch is cut.
        microbatch_rows: Sequences in one piece.
        schedule: Name of the pipeline schedule, as torch.distributed.pipelining knows it.
        sharding: Whether parameters are sharded over the data axis, or in groups of it.
        shard_group: Ranks of such a group, neighbours; used by hybrid sharding alone.
        reasons: Why this layout, a sentence each.
        estimate: Expected time of a step; None when the size of the model is unknown.
    """

    layout: Layout
    stages: tuple[Stage, ...]
    microbatches: int
    microbatch_rows: int
    schedule: str
    sharding: Sharding
    shard_group: int = 1
    reasons: tuple[str, ...] = ()
    estimate: StepEstimate | None = None

    @property
    def global_batch(self) -> int:
        """Sequences in one step over all ranks."""
        return self.layout.data * self.microbatches * self.microbatch_rows

    @property
    def shards(self) -> int:
        """Ranks over which a parameter is shared out, 1 = none."""
        return self.sharding.ranks(self.layout.copies, self.shard_group)

    @property
    def virtual(self) -> int:
        """Stages that a rank owns."""
        return len(self.stages) // self.layout.pipeline

    def owner_of(self, stage: int) -> int:
        """Return the place in the pipeline of the ranks that own a stage."""
        return schedule_named(self.schedule).owner(stage, self.layout.pipeline)

    def stages_of(self, pipeline: int) -> tuple[Stage, ...]:
        """Return the stages of the ranks at a place in the pipeline, first to last."""
        schedule = schedule_named(self.schedule)
        owned = schedule.stages_of(pipeline, self.layout.pipeline, self.virtual)
        return tuple(self.stages[stage] for stage in owned)

    @property
    def ends(self) -> tuple[int, int]:
        """Places in the pipeline of the first stage and of the last; equal in a V."""
        return self.owner_of(0), self.owner_of(len(self.stages) - 1)

    @property
    def peak(self) -> Peak:
        """The ranks that need most memory."""
        needs = [self._need(place) for place in range(self.layout.pipeline)]
        return max(needs, key=lambda need: need.memory.total_bytes)

    def _need(self, pipeline: int) -> Peak:
        stages = self.stages_of(pipeline)
        memory = stages[0].memory
        for stage in stages[1:]:
            memory = memory.beside(stage.memory)
        return Peak(pipeline=pipeline, stages=tuple(stage.index for stage in stages), memory=memory)

    @property
    def digest(self) -> str:
        """Short hash that names what the ranks build; reasons and estimates do not count."""
        cuts = tuple((stage.first_layer, stage.end_layer) for stage in self.stages)
        key = (
            self.layout, cuts, self.microbatches, self.microbatch_rows, self.schedule,
            self.sharding, self.shards,
        )  # fmt: skip
        return hashlib.sha256(encode(key)).hexdigest()[:12]
