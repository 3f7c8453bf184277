"""The loss stopped falling early, while most of the run lies ahead.

Two ways to get there are told: updates that have collapsed, as under a schedule that ends too soon,
and a loss that does not move for very long. A loss that flattens bit by bit, late, or after a long
fall is a run that is done learning, and healthy.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median, pstdev
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding, StepDone
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Run, Speaker, update_ratios

WINDOW_STEPS = 20
FLAT = 0.015
"""Share of its value by which a loss moves that is flat, between windows."""
COLLAPSED = 0.05
"""Share of their largest median below which updates have collapsed."""
LONG_STEPS = 200
LONG_FLAT = 0.003
EARLY = 0.5
"""Share of the run before which a plateau is early."""
LEARNT = 0.5
"""Share of its first value below which a loss has fallen far enough to flatten."""
PERSISTENCE_STEPS = 3


class Plateau(Speaker):
    """Speaks in the first half of a run when its loss is flat, for 20 or for 200 steps."""

    name: ClassVar[str] = "plateau"

    def __init__(self) -> None:
        super().__init__()
        self._losses: deque[float] = deque(maxlen=LONG_STEPS)
        self._ratios: deque[float] = deque(maxlen=WINDOW_STEPS // 2)
        self._largest = 0.0
        self._flat = Run(PERSISTENCE_STEPS)
        self._step = 0
        self._first: float | None = None

    def _begin(self) -> None:
        self._losses.clear()
        self._ratios.clear()
        self._step = self._resumed

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, LayersMeasured):
            self._take_updates(event)
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        if not math.isfinite(event.loss):
            return None
        self._first = event.loss if self._first is None else self._first
        self._losses.append(event.loss)
        why = self._collapsed() or self._long()
        if not self._flat.is_long(event.step < EARLY * self._asked and why is not None):
            return None
        return self._found(
            event,
            event.step,
            f"the loss stays at {median(list(self._losses)[-WINDOW_STEPS:]):.3f}: {why}",
            f"{event.step} of {self._asked} steps are done, learning rate {event.learning_rate:g}",
            advice=("look at the schedule of the learning rate, and at the data",),
        )

    def _take_updates(self, event: LayersMeasured) -> None:
        _, ratios = update_ratios(event)
        if np.isfinite(ratios).any():
            self._ratios.append(float(np.nanmedian(ratios)))
            if len(self._ratios) == self._ratios.maxlen:
                self._largest = max(self._largest, median(self._ratios))

    def _collapsed(self) -> str | None:
        losses = list(self._losses)[-2 * WINDOW_STEPS :]
        if len(losses) < 2 * WINDOW_STEPS or len(self._ratios) < WINDOW_STEPS // 2:
            return None
        before, now = median(losses[:WINDOW_STEPS]), median(losses[WINDOW_STEPS:])
        updates = median(self._ratios)
        noise = pstdev(losses) / WINDOW_STEPS**0.5
        if updates > COLLAPSED * self._largest or abs(before - now) > max(FLAT * before, noise):
            return None
        return f"updates have fallen from {self._largest:.1e} to {updates:.1e} of the weights"

    def _long(self) -> str | None:
        losses = list(self._losses)
        if len(losses) < LONG_STEPS or losses[-1] < LEARNT * (self._first or 0.0):
            return None
        half = LONG_STEPS // 2
        before, now = median(losses[:half]), median(losses[half:])
        if before - now > LONG_FLAT * before:
            return None
        return f"{before:.4f} and {now:.4f} are the medians of the last two {half} steps"
