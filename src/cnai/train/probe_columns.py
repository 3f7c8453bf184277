"""The places of a vector that all ranks fill together, in one sum.

Each rank holds some numbers of some parameters. It puts its part into the place of each parameter
that it holds and zeros elsewhere; the sum over all ranks is then the whole. Squares are divided by
the number of ranks that hold the very same numbers, so that a copy does not count twice; means by
the number of ranks that measured one. That is exact for any mix of copies, splits, shards (even
uneven or empty ones) and stages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

from cnai.core.vectors import Columns, Vector

NORMS = ("gradient", "update", "weight")
"""Groups whose sums are of squares; all others are means."""

_SIZES = "#"
_INDEX = re.compile(r"\.(\d+)\.")


class Places:
    """Where this rank's measurements go in the vector of all.

    Attributes:
        columns: The places of the whole vector.

    Args:
        parameters: Name and number of ranks with the same numbers, in the order of the model.
        means: Names of what is measured besides, by group.
        matrices: Numbers in each parameter with more than one axis.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, float]],
        means: Mapping[str, Sequence[str]],
        matrices: Mapping[str, int],
    ) -> None:
        sizes = [f"{count} {name}" for name, count in matrices.items()]
        names_here = [name for name, _ in parameters]
        mine = {"": names_here, _SIZES: sizes, **{g: list(n) for g, n in means.items()}}
        all_of = gathered(mine)
        held = {
            name: int(count)
            for one in all_of
            for count, name in (size.split(" ", 1) for size in one.pop(_SIZES, ()))
        }
        names = in_order([one[""] for one in all_of])
        groups = dict.fromkeys(NORMS, names)
        shares = {group: {name: 1 / copies for name, copies in parameters} for group in NORMS}
        for group in dict.fromkeys(group for one in all_of for group in one if group):
            lists = [one.get(group, []) for one in all_of]
            groups[group] = in_order(lists)
            holders = Counter(name for one in lists for name in one)
            shares[group] = {name: 1 / holders[name] for name in means.get(group, ())}
        self.columns = Columns(
            tuple((name, tuple(members)) for name, members in groups.items()),
            tuple((name, held[name]) for name in names if name in held),
        )
        self._index = {
            group: np.array([members.index(name) for name in shares[group]], dtype=np.int64)
            for group, members in groups.items()
        }
        self._share = {group: np.array(list(one.values())) for group, one in shares.items()}

    def part(self, group: str, values: Sequence[float]) -> list[float]:
        """Return this rank's part of a group, as wide as the group.

        Args:
            values: What it measured, in the order in which it named the members.
        """
        whole = np.zeros(len(self.columns.names(group)))
        whole[self._index[group]] = np.asarray(values, dtype=np.float64) * self._share[group]
        found: list[float] = whole.tolist()
        return found

    def index(self, group: str) -> list[int]:
        """Return the places, within a group, of what this rank measures."""
        found: list[int] = self._index[group].tolist()
        return found

    @staticmethod
    def whole(group: str, sums: npt.ArrayLike) -> Vector:
        """Return the values of a group out of the sum of all ranks' parts."""
        values = np.asarray(sums, dtype=np.float64)
        return (np.sqrt(values) if group in NORMS else values).astype(np.float32)


def gathered(mine: dict[str, list[str]]) -> list[dict[str, list[str]]]:
    """Return what each rank says of itself; all ranks call this at the same time."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [mine]
    all_of: list[dict[str, list[str]]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(all_of, mine)
    return all_of


def in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """Put the names of all ranks into one order, that of the model.

    Where ranks hold different layers, these are sorted by their index, and come after what stands
    before the first of them.
    """
    names = list(dict.fromkeys(name for one in lists for name in one))
    if all(list(one) == names for one in lists if one):
        return names
    first = next((place for place, name in enumerate(names) if _INDEX.search(name)), None)
    if first is None:
        return names
    before, rest = names[:first], names[first:]
    layers = sorted((one for one in rest if _INDEX.search(one)), key=_layer)
    return [*before, *layers, *(one for one in rest if not _INDEX.search(one))]


def _layer(name: str) -> int:
    found = _INDEX.search(name)
    return int(found[1]) if found else -1
