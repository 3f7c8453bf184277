"""How a module of the user's own is trained, where that differs from a decoder."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.models import RowLosses


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTask:
    """What the loop must know of a user's module.

    Attributes:
        losses: From outputs and target to the loss of each row.
        judges_itself: Whether the module takes the target too.
        layers: Path of its layers, None = it names none.
        summed: Names of the parameters that each rank of a model-parallel group uses on its own
            columns only.
    """

    losses: RowLosses
    judges_itself: bool = False
    layers: str | None = None
    summed: frozenset[str] = frozenset()
