"""What is asked of the planner, and one layout that it weighs."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.adapters import Adapters
from cnai.core.layout import Layout, Sharding
from cnai.core.shape import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A model, a batch, and as much of the layout as the user fixed; None = chosen by the planner.

    Attributes:
        shape: The decoder; None for a user's own module, whose size is not known.
        batch: Sequences in a step over all ranks.
        sequence: Tokens in a sequence.
        optimizer: `adamw` or `sgd`.
        precision: `float32` or `bfloat16`, the format of the matrix products.
        sharding: `auto`, `none` or `full`.
        schedule: `1F1B` or `GPipe`.
        adapters: What is trained beside frozen weights; None = the weights themselves are.
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
    sharding: str = "auto"
    schedule: str = "1F1B"
    microbatches: int | None = None
    adapters: Adapters | None = None
    ranks: int | None = None

    @property
    def asked(self) -> Layout:
        """The sizes that were fixed, 1 for each that was not."""
        return Layout(
            data=self.data or 1,
            model=self.model or 1,
            pipeline=self.pipeline or 1,
            split_layer=self.split_layer,
        )

    @property
    def is_fixed(self) -> bool:
        """Whether all three sizes were given."""
        return None not in (self.data, self.model, self.pipeline)


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

    def split_layers(self, stage: int) -> int:
        """Layers of a stage whose weights are split over the model axis."""
        first, end = self.cuts[stage]
        return max(0, end - max(first, self.layout.split_layer)) if self.layout.model > 1 else 0

    def layers(self, stage: int) -> int:
        """Layers of a stage."""
        first, end = self.cuts[stage]
        return end - first
