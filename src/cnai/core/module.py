"""What is known of a module of the user's own: its sizes, and how it may be split and cut.

Counted where torch is (`cnai.models.user_module`), read by the planner, which has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Split(StrEnum):
    """What the ranks of a model-parallel group hold of a part of a module."""

    COLUMN = "column"
    """A share of the outputs; each rank goes on with its own."""
    ROW = "row"
    """A share of the inputs; the outputs are summed over the group."""
    WHOLE = "whole"
    """All of it, doing the same work on every rank."""
    SUMMED = "summed"
    """All of it, but each rank uses it on its own columns, so gradients are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTable:
    """The sharding table that a user's function returns beside the module.

    Attributes:
        split: Pattern of module paths and what becomes of them; the first that fits counts.
        layers: Path of the ModuleList of layers, None = there is none.
        inlet: Paths called one after the other before the layers.
        outlet: Paths called one after the other after the layers.
        heads: Number that the size of the group must divide beside the widths.
    """

    split: tuple[tuple[str, Split], ...] = ()
    layers: str | None = None
    inlet: tuple[str, ...] = ()
    outlet: tuple[str, ...] = ()
    heads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Parameters of one layer, or of what lies before or after the layers.

    Attributes:
        whole: Those that stand whole on every rank of a group.
        split: Those that are split over it.
        trained_whole: Of `whole`, those that training changes.
        trained_split: Of `split`, those that training changes.
    """

    whole: int = 0
    split: int = 0
    trained_whole: int = 0
    trained_split: int = 0

    def held(self, size: int) -> int:
        """Return the parameters on one rank of a group of that size."""
        return self.whole + self.split // size

    def trained(self, size: int) -> int:
        """Return those of them that training changes."""
        return self.trained_whole + self.trained_split // size

    def beside(self, other: Unit) -> Unit:
        """Return both together."""
        return Unit(
            whole=self.whole + other.whole,
            split=self.split + other.split,
            trained_whole=self.trained_whole + other.trained_whole,
            trained_split=self.trained_split + other.trained_split,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """The sizes of a user's module.

    Attributes:
        name: `package.module:function`.
        layers: One a layer, in order; empty where the table names none.
        inlet: What comes before the layers.
        outlet: All the rest.
        widths: What the size of a model-parallel group must divide, by name.
        no_split: Why it cannot be split over a group; None = it can.
        no_cut: Why it cannot be cut into stages; None = it can.
        no_recompute: Why its layers cannot be recomputed; None = they can.
    """

    name: str
    layers: tuple[Unit, ...]
    inlet: Unit
    outlet: Unit
    widths: tuple[tuple[str, int], ...]
    no_split: str | None
    no_cut: str | None
    no_recompute: str | None

    @property
    def parameters(self) -> int:
        """All parameters, each counted once."""
        units = (*self.layers, self.inlet, self.outlet)
        return sum(unit.whole + unit.split for unit in units)

    def stage(self, first_layer: int, end_layer: int, split_layer: int) -> Unit:
        """Return the parameters of a stage, none split before `split_layer`."""
        last = len(self.layers)
        total = Unit()
        for index in range(first_layer, end_layer):
            total = total.beside(self._from(self.layers[index], index >= split_layer))
        if first_layer == 0:
            total = total.beside(self._from(self.inlet, split_layer == 0))
        if end_layer == last:
            total = total.beside(self._from(self.outlet, split_layer == 0 or split_layer < last))
        return total

    @staticmethod
    def _from(unit: Unit, is_split: bool) -> Unit:
        """Return a unit as it lies where it is split, or where it stays whole."""
        if is_split:
            return unit
        return Unit(
            whole=unit.whole + unit.split, trained_whole=unit.trained_whole + unit.trained_split
        )
