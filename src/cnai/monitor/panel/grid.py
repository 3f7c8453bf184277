"""What each rank or layer did over the whole run, in tables of bounded size."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cnai.core.events import StepDone
from cnai.core.vectors import Columns, LayersMeasured, Vector

_MOST_CELLS = 1 << 21
_FEWEST_COLUMNS = 64
_MOST_COLUMNS = 4096
_DEPTH = re.compile(r"(?:^|\.)(\d+)\.")


class Stretches:
    """Means by row and stretch of steps; stretches double when they become too many.

    It holds at most about two million cells a measure, whatever the number of rows and steps.

    Attributes:
        every: Steps in a stretch.

    Args:
        measures: Numbers that are kept of each row.
    """

    def __init__(self, rows: int, measures: int) -> None:
        self._columns = _columns_for(rows)
        self.every = 1
        self._used = 0
        self._count = np.zeros((measures, rows, self._columns), dtype=np.float32)
        self._sum = np.zeros_like(self._count)

    @property
    def rows(self) -> int:
        """Rows that there are."""
        return self._count.shape[1]

    def put(self, step: int, first: int, values: ArrayLike) -> None:
        """Take the numbers of some rows in a step, counted from 1; NaN is passed over.

        Args:
            first: Row of the first; more rows are made when there are too few.
            values: Shape (measures, rows).
        """
        taken = np.asarray(values, dtype=np.float32)
        end = first + taken.shape[1]
        if end > self.rows:
            self._grow(end)
        column = (step - 1) // self.every
        while column >= self._columns:
            self._halve()
            column = (step - 1) // self.every
        self._used = max(self._used, column + 1)
        known = np.isfinite(taken)
        self._count[:, first:end, column] += known
        self._sum[:, first:end, column] += np.where(known, taken, 0)

    def forget_after(self, step: int) -> None:
        """Forget the stretches that begin beyond a step."""
        used = min(self._used, -(-step // self.every))
        for table in (self._count, self._sum):
            table[:, :, used : self._used] = 0
        self._used = used

    def means(self, measure: int, columns: int) -> list[list[float | None]]:
        """Return the means of each row in at most so many stretches; None where there is none."""
        if not self._used:
            return []
        starts = np.arange(0, self._used, max(1, -(-self._used // columns)))
        count = np.add.reduceat(self._count[measure, :, : self._used], starts, axis=1)
        total = np.add.reduceat(self._sum[measure, :, : self._used], starts, axis=1)
        means = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        return [
            [None if math.isnan(one) else float(f"{one:.4g}") for one in row]
            for row in means.tolist()
        ]

    def stretch_steps(self, columns: int) -> int:
        """Return the steps in each stretch that `means` gives."""
        return max(1, -(-self._used // columns)) * self.every

    def around(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the rows that were there around a step, and their means (measures, rows)."""
        column = (step - 1) // self.every
        if not 0 <= column < self._used:
            return np.empty(0, dtype=np.int64), np.empty((len(self._count), 0), dtype=np.float32)
        present = np.flatnonzero(self._count[0, :, column])
        return present, self._sum[:, present, column] / self._count[:, present, column]

    def _grow(self, rows: int) -> None:
        """Make room for more rows, with fewer stretches when the table would become too large."""
        columns = min(self._columns, _columns_for(rows))
        while self._used > columns:
            self._halve()
        self._columns = columns
        more = ((0, 0), (0, rows - self.rows), (0, 0))
        self._count = np.pad(self._count[:, :, :columns], more)
        self._sum = np.pad(self._sum[:, :, :columns], more)

    def _halve(self) -> None:
        """Put each two neighbouring stretches together."""
        half = self._columns // 2
        for table in (self._count, self._sum):
            table[:, :, :half] = table[:, :, ::2] + table[:, :, 1::2]
            table[:, :, half:] = 0
        self.every *= 2
        self._used = -(-self._used // 2)


class RankGrid:
    """Mean time of a step and wait for data of each rank."""

    def __init__(self, ranks: int = 1) -> None:
        self._table = Stretches(ranks, 2)

    @property
    def every(self) -> int:
        """Steps in a stretch."""
        return self._table.every

    def add(self, event: StepDone) -> None:
        """Take a step of a rank."""
        times = [[event.step_seconds], [event.data_wait_seconds]]
        self._table.put(event.step, event.rank, times)

    def forget_after(self, step: int) -> None:
        """Forget the stretches that begin beyond a step."""
        self._table.forget_after(step)

    def waits(self, columns: int) -> list[list[float | None]]:
        """Return the mean wait for data of each rank in at most so many stretches, seconds."""
        return self._table.means(1, columns)

    def stretch_steps(self, columns: int) -> int:
        """Return the steps in each stretch that `waits` gives."""
        return self._table.stretch_steps(columns)

    def at(self, step: int) -> list[tuple[int, float, float]]:
        """Return rank, mean step time and mean wait around a step, for the ranks that were there.

        A stretch in which nobody reported gives nothing.
        """
        ranks, (seconds, wait) = self._table.around(step)
        return list(zip(ranks.tolist(), seconds.tolist(), wait.tolist(), strict=True))


class LayerGrid:
    """Gradient norm, and update over weight, of each layer.

    Attributes:
        names: Rows, in the order of the model: `embedding`, `layer 0`, ..., `head`.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._table: Stretches | None = None
        self._columns: Columns | None = None
        self._row = np.empty(0, dtype=np.int64)

    def add(self, record: LayersMeasured) -> None:
        """Take the record of a step; other layers than before begin a new table."""
        if record.columns != self._columns:
            self._begin(record.columns)
        if self._table is None:
            return
        gradient, update, weight = (
            self._norms(record.group(name)) for name in ("gradient", "update", "weight")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            self._table.put(record.step, 0, np.stack((gradient, update / weight)))

    def forget_after(self, step: int) -> None:
        """Forget the stretches that begin beyond a step."""
        if self._table is not None:
            self._table.forget_after(step)

    def norms(self, columns: int) -> list[list[float | None]]:
        """Return the gradient norm of each layer in at most so many stretches."""
        return self._table.means(0, columns) if self._table else []

    def ratios(self, columns: int) -> list[list[float | None]]:
        """Return the norm of the updates over that of the weights, likewise."""
        return self._table.means(1, columns) if self._table else []

    def stretch_steps(self, columns: int) -> int:
        """Return the steps in each stretch."""
        return self._table.stretch_steps(columns) if self._table else 1

    def _begin(self, columns: Columns) -> None:
        layers = [layer_of(name) for name in columns.names("gradient")]
        names = list(dict.fromkeys(layers))
        if names != self.names or self._table is None:
            self._table = Stretches(len(names), 2) if names else None
        self.names, self._columns = names, columns
        self._row = np.array([names.index(layer) for layer in layers], dtype=np.int64)

    def _norms(self, values: Vector) -> NDArray[np.float64]:
        """Return the norm of each layer out of those of its parameters."""
        squares = np.zeros(len(self.names))
        np.add.at(squares, self._row, values.astype(np.float64) ** 2)
        return np.sqrt(squares)


def layer_of(parameter: str) -> str:
    """Return the row of a parameter: its layer, else the first word of its name."""
    found = _DEPTH.search(parameter)
    return f"layer {int(found[1])}" if found else parameter.partition(".")[0]


def _columns_for(rows: int) -> int:
    """Return a power of two, so that halving is always whole."""
    fitting = 1 << max(0, (_MOST_CELLS // max(1, rows)).bit_length() - 1)
    return min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, fitting))
