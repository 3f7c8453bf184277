"""How a model lies over ranks: the layout asked for, and the plan made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from cnai.core.estimate import StepEstimate
from cnai.core.records import encode


class Sharding(StrEnum):
    """What the ranks of a data-parallel group keep of the parameters they share."""

    NONE = "none"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank's coordinates in the mesh (pipeline, data, model)."""

    rank: int
    pipeline: int
    data: int
    model: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the three parallel axes.

    Ranks are numbered with the model axis innermost, because its members talk most, and the
    pipeline axis outermost: `rank = (pipeline * data_size + data) * model_size + model`.

    Attributes:
        data: Copies of the model that each take a share of every batch.
        model: Ranks over which one layer's weights are split (tensor parallelism).
        pipeline: Stages into which the layers are cut.
        split_layer: Index of the first transformer layer whose weights are split over the model
            axis; earlier layers are replicated inside it. The embedding goes with layer 0 and an
            untied head with the last layer.
    """

    data: int = 1
    model: int = 1
    pipeline: int = 1
    split_layer: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.data * self.model * self.pipeline

    def place(self, rank: int) -> Place:
        """Return the coordinates of a rank."""
        rest, model = divmod(rank, self.model)
        pipeline, data = divmod(rest, self.data)
        return Place(rank=rank, pipeline=pipeline, data=data, model=model)

    def places(self) -> Iterator[Place]:
        """Yield the coordinates of every rank."""
        return (self.place(rank) for rank in range(self.ranks))

    def is_split(self, layer: int) -> bool:
        """Tell whether a layer's weights are split over the model axis."""
        return self.model > 1 and layer >= self.split_layer

    def __str__(self) -> str:
        return f"dp{self.data} x tp{self.model} x pp{self.pipeline}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: layers `first_layer` up to but not including `end_layer`.

    Attributes:
        parameters: Parameters of the stage before any split; stage 0 holds the embedding and the
            last stage the final norm and head (its own copy of a tied one).
        memory: Estimate for one rank of this stage.
    """

    index: int
    first_layer: int
    end_layer: int
    parameters: int
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """A layout with everything that the runtime needs to build it.

    Attributes:
        microbatches: Pieces into which a rank's share of the batch is cut.
        microbatch_rows: Sequences in one piece.
        schedule: Name of the pipeline schedule, as torch.distributed.pipelining knows it.
        sharding: Whether parameters are sharded over the data axis.
        reasons: Why this layout, a sentence each.
        estimate: Expected time of a step; None when the size of the model is unknown.
    """

    layout: Layout
    stages: tuple[Stage, ...]
    microbatches: int
    microbatch_rows: int
    schedule: str
    sharding: Sharding
    reasons: tuple[str, ...] = ()
    estimate: StepEstimate | None = None

    @property
    def global_batch(self) -> int:
        """Sequences in one step over all ranks."""
        return self.layout.data * self.microbatches * self.microbatch_rows

    @property
    def peak(self) -> Stage:
        """The stage whose ranks need most memory."""
        return max(self.stages, key=lambda stage: stage.memory.total_bytes)

    @property
    def digest(self) -> str:
        """Short hash that names what the ranks build; reasons and estimates do not count."""
        cuts = tuple((stage.first_layer, stage.end_layer) for stage in self.stages)
        key = (
            self.layout, cuts, self.microbatches, self.microbatch_rows, self.schedule,
            self.sharding,
        )  # fmt: skip
        return hashlib.sha256(encode(key)).hexdigest()[:12]
