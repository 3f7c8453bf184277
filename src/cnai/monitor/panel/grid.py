"""What each rank did over the whole run, in a table of bounded size."""

from __future__ import annotations

import math

import numpy as np

from cnai.core.events import StepDone

_MOST_CELLS = 1 << 21
_FEWEST_COLUMNS = 64
_MOST_COLUMNS = 4096


class RankGrid:
    """Mean times of each rank in stretches of steps; stretches double when they become too many.

    It holds at most about two million cells, whatever the number of ranks and steps.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._columns = _columns_for(ranks)
        self.every = 1
        """Steps in a stretch."""
        self._used = 0
        self._count = np.zeros((ranks, self._columns), dtype=np.float32)
        self._seconds = np.zeros_like(self._count)
        self._wait = np.zeros_like(self._count)

    @property
    def ranks(self) -> int:
        """Ranks that have a row."""
        return len(self._count)

    def add(self, event: StepDone) -> None:
        """Take a step of a rank."""
        if event.rank >= self.ranks:
            self._grow(event.rank + 1)
        column = (event.step - 1) // self.every
        while column >= self._columns:
            self._halve()
            column = (event.step - 1) // self.every
        self._used = max(self._used, column + 1)
        self._count[event.rank, column] += 1
        self._seconds[event.rank, column] += event.step_seconds
        self._wait[event.rank, column] += event.data_wait_seconds

    def forget_after(self, step: int) -> None:
        """Forget the stretches that begin beyond a step."""
        used = min(self._used, -(-step // self.every))
        for table in (self._count, self._seconds, self._wait):
            table[:, used : self._used] = 0
        self._used = used

    def waits(self, columns: int) -> list[list[float | None]]:
        """Return the mean wait for data of each rank in at most so many stretches, seconds."""
        if not self._used:
            return []
        width = max(1, -(-self._used // columns))
        starts = np.arange(0, self._used, width)
        count = np.add.reduceat(self._count[:, : self._used], starts, axis=1)
        wait = np.add.reduceat(self._wait[:, : self._used], starts, axis=1)
        means = np.divide(wait, count, out=np.full_like(wait, np.nan), where=count > 0)
        return [
            [None if math.isnan(one) else round(one, 5) for one in row.tolist()] for row in means
        ]

    def stretch_steps(self, columns: int) -> int:
        """Return the steps in each stretch that `waits` gives."""
        return max(1, -(-self._used // columns)) * self.every

    def at(self, step: int) -> list[tuple[int, float, float]]:
        """Return rank, mean step time and mean wait around a step, for the ranks that were there.

        A stretch in which nobody reported gives nothing.
        """
        column = (step - 1) // self.every
        if not 0 <= column < self._used:
            return []
        count = self._count[:, column]
        present = np.flatnonzero(count)
        seconds = self._seconds[present, column] / count[present]
        wait = self._wait[present, column] / count[present]
        return list(zip(present.tolist(), seconds.tolist(), wait.tolist(), strict=True))

    def _grow(self, ranks: int) -> None:
        """Make room for more ranks, with fewer stretches when the table would become too large."""
        columns = min(self._columns, _columns_for(ranks))
        while self._used > columns:
            self._halve()
        self._columns = columns
        self._count, self._seconds, self._wait = (
            table[:, :columns].copy() for table in (self._count, self._seconds, self._wait)
        )
        more = ((0, ranks - self.ranks), (0, 0))
        self._count, self._seconds, self._wait = (
            np.pad(table, more) for table in (self._count, self._seconds, self._wait)
        )

    def _halve(self) -> None:
        """Put each two neighbouring stretches together."""
        half = self._columns // 2
        for table in (self._count, self._seconds, self._wait):
            table[:, :half] = table[:, ::2] + table[:, 1::2]
            table[:, half:] = 0
        self.every *= 2
        self._used = -(-self._used // 2)


def _columns_for(ranks: int) -> int:
    """Return a power of two, so that halving is always whole."""
    fitting = 1 << max(0, (_MOST_CELLS // max(1, ranks)).bit_length() - 1)
    return min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, fitting))
