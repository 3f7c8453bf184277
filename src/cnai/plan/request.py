"""What is asked of the planner, and one layout that it weighs."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.adapters import Adapters
from cnai.core.layout import Layout, Sharding
from cnai.core.module import ModuleFacts
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.plan.software import CNAI, Software


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A model, a batch, and as much of the layout as the user fixed; None = chosen by the planner.

    Attributes:
        shape: The decoder; None for a user's own module.
        module: What was counted of a user's own module; None = nothing was.
        batch: Sequences in a step over all ranks.
        sequence: Tokens in a sequence.
        optimizer: `adamw`, `muon` or `sgd`.
        precision: `float32` or `bfloat16`, the format of the matrix products.
        sharding: `auto`, `none`, `hybrid` or `full`.
        shard_group: Ranks of a group of hybrid sharding; None = those of a machine.
        schedule: A name of `core.schedules`.
        virtual: Stages a rank of the pipeline; None = what the schedule needs.
        split_sequence: Whether the model axis also shares out the positions of a sequence.
        context: Ranks that share out the positions of a sequence; taken as asked.
        expert: Ranks of the data and context axes over which experts are spread; taken as asked.
        recompute: `none`, `selective` or `full`, a value of `core.recompute`.
        adapters: What is trained beside frozen weights; None = the weights themselves are.
        software: The program that will train; its own runtime unless said otherwise.
        ranks: Ranks in all; None = the product of the sizes, or what the fleet has.
    """

    shape: DecoderShape | None
    batch: int
    sequence: int
    optimizer: str = "adamw"
    precision: str = "float32"
    data: int | None = None
    model: int | None = None
    pipeline: int | None = None
    split_layer: int = 0
    split_sequence: bool = False
    context: int = 1
    expert: int = 1
    sharding: str = "auto"
    shard_group: int | None = None
    schedule: str = "1F1B"
    virtual: int | None = None
    microbatches: int | None = None
    recompute: str = "none"
    adapters: Adapters | None = None
    ranks: int | None = None
    module: ModuleFacts | None = None
    software: Software = CNAI

    @property
    def asked(self) -> Layout:
        """The sizes that were fixed, 1 for each that was not."""
        return Layout(
            data=self.data or 1,
            model=self.model or 1,
            pipeline=self.pipeline or 1,
            split_layer=self.split_layer,
            split_sequence=self.split_sequence,
            context=self.context,
            expert=self.expert,
        )

    @property
    def is_fixed(self) -> bool:
        """Whether all sizes were given."""
        return None not in (self.data, self.model, self.pipeline)

    @property
    def element_bytes(self) -> int:
        """Bytes of a number in the matrix products."""
        return 4 if self.precision == "float32" else 2

    def virtual_of(self, layout: Layout) -> int:
        """Return the stages of each rank; without a pipeline there is one."""
        if layout.pipeline == 1:
            return 1
        return self.virtual or schedule_named(self.schedule).virtual


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One way to build the model that is weighed: everything but its memory and time.

    Attributes:
        cuts: First layer and end layer of each stage.
        microbatches: Pieces of a rank's share of the batch.
        rows: Sequences in a piece.
    """

    layout: Layout
    cuts: tuple[tuple[int, int], ...]
    microbatches: int
    rows: int
    schedule: str
    sharding: Sharding
    shard_group: int = 1

    @property
    def shards(self) -> int:
        """Ranks over which a parameter is shared out, 1 = none."""
        return self.sharding.ranks(self.layout.copies, self.shard_group)

    def expert_shards(self, width: int) -> int:
        """Ranks over which the numbers of spread experts are shared out, 1 = none."""
        return self.layout.expert_shards(self.sharding, width)

    def tokens(self, sequence: int) -> int:
        """Tokens of a piece that one rank sees."""
        return self.rows * sequence // self.layout.context

    @property
    def virtual(self) -> int:
        """Stages of each rank of the pipeline."""
        return len(self.cuts) // self.layout.pipeline

    @property
    def last(self) -> int:
        """Index of the last stage."""
        return len(self.cuts) - 1

    def owner(self, stage: int) -> int:
        """Place in the pipeline of the ranks that own a stage."""
        return schedule_named(self.schedule).owner(stage, self.layout.pipeline)

    def stages_of(self, pipeline: int) -> tuple[int, ...]:
        """Stages of the ranks at a place in the pipeline."""
        schedule = schedule_named(self.schedule)
        return schedule.stages_of(pipeline, self.layout.pipeline, self.virtual)

    def split_layers(self, stage: int) -> int:
        """Layers of a stage whose weights are split over the model axis."""
        first, end = self.cuts[stage]
        return max(0, end - max(first, self.layout.split_layer)) if self.layout.model > 1 else 0

    def kind(self, shape: DecoderShape, stage: int) -> tuple[int | bool, ...]:
        """Return what tells stages apart; those of one kind need the same time and weights."""
        first, end = self.cuts[stage]
        sparse = sum(map(shape.is_sparse, range(first, end))) if shape.experts else 0
        return (
            end - first,
            self.split_layers(stage),
            first % 2,
            sparse,
            not stage,
            stage == self.last,
        )

    def layers(self, stage: int) -> int:
        """Layers of a stage."""
        first, end = self.cuts[stage]
        return end - first
