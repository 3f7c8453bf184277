"""What a run did in each step, as columns of numbers."""

from __future__ import annotations

import numpy as np

from cnai.core.events import StepDone
from cnai.monitor.goodput import PARTS, Goodput
from cnai.monitor.panel.thinning import Array

CURVES = ("loss", "grad_norm", "learning_rate", "tokens_per_second", "step_seconds", "slowest_wait")
"""Columns that are drawn over the steps; `slowest_wait` is the longest wait of a rank for data, in
seconds."""

_COLUMNS = ("step", "time_unix", *CURVES, *PARTS)
_INDEX = {name: number for number, name in enumerate(_COLUMNS)}
_FIRST_ROWS = 1024


class StepTable:
    """One row a step, in order of steps; grows at the end, and is cut when an attempt resumes."""

    def __init__(self) -> None:
        self._rows = np.empty((_FIRST_ROWS, len(_COLUMNS)))
        self._length = 0
        self.cuts = 0
        """How often rows were taken away; who has drawn older rows is to draw anew."""

    def __len__(self) -> int:
        return self._length

    @property
    def last_step(self) -> int:
        """Step of the last row, 0 when there is none."""
        return int(self._rows[self._length - 1, 0]) if self._length else 0

    def column(self, name: str) -> Array:
        """Return a column; a view that is valid until the next change."""
        view: Array = self._rows[: self._length, _INDEX[name]]
        return view

    def append(self, event: StepDone, goodput: Goodput) -> None:
        """Add the row of a step that is beyond the last."""
        if self._length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        rate = event.tokens / event.step_seconds if event.step_seconds > 0 else np.nan
        self._rows[self._length] = (
            event.step, event.time_unix, event.loss, event.grad_norm, event.learning_rate,
            rate, event.step_seconds, event.data_wait_seconds, *goodput.parts.values(),
        )  # fmt: skip
        self._length += 1

    def add_rank(self, event: StepDone) -> None:
        """Take what another rank says of a step: of times the longest counts."""
        row = self.row_of(event.step)
        if row is None or int(self._rows[row, 0]) != event.step:
            return
        here = self._rows[row]
        seconds, wait = _INDEX["step_seconds"], _INDEX["slowest_wait"]
        if event.step_seconds > here[seconds]:
            here[seconds] = event.step_seconds
            here[_INDEX["tokens_per_second"]] = event.tokens / event.step_seconds
        here[wait] = max(here[wait], event.data_wait_seconds)

    def row_of(self, step: int) -> int | None:
        """Return the last row that is not beyond a step, None when there is none."""
        if self._length and self._rows[self._length - 1, 0] <= step:
            return self._length - 1
        row = int(np.searchsorted(self._rows[: self._length, 0], step, side="right")) - 1
        return row if row >= 0 else None

    def cell(self, row: int, name: str) -> float:
        """Return one value."""
        return float(self._rows[row, _INDEX[name]])

    def forget_after(self, step: int) -> None:
        """Take away the rows beyond a step, which is about to be repeated."""
        row = self.row_of(step)
        length = 0 if row is None else row + 1
        if length < self._length:
            self._length = length
            self.cuts += 1
