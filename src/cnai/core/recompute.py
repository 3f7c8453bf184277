"""Which layers compute their activations again in backward instead of keeping them."""

from __future__ import annotations

from enum import StrEnum


class Recompute(StrEnum):
    """How much is computed twice.

    `selective` takes every second layer: half of the memory for half of the work. The attention
    here keeps no scores, so no part of a layer holds more bytes for its work than the others, and
    recomputing attention alone (Korthikanti et al. 2022, arXiv 2205.05198, section 5) would save
    little.
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"

    def covers(self, layer: int) -> bool:
        """Tell whether a layer of the model is computed twice."""
        return self is Recompute.FULL or (self is Recompute.SELECTIVE and layer % 2 == 1)
