"""The loss stopped falling early, while most of the run lies ahead.

A loss that flattens late, or after a long fall, is a run that is done learning, and healthy.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median, pstdev
from typing import ClassVar

from cnai.core.events import Event, Finding, StepDone
from cnai.monitor.detectors.speaker import Speaker

WINDOW_STEPS = 40
EARLY = 0.5
"""Share of the run before which a plateau is early."""
FELL = 0.05
"""Share of its value by which the loss must have fallen before."""
NOISE = 0.1
"""Part of the scatter of the window by which the loss falls, where it still falls."""
_FALLING = 0.004


class Plateau(Speaker):
    """Speaks when 40 steps brought nothing, in the first half of the run, after a clear fall."""

    name: ClassVar[str] = "plateau"

    def __init__(self) -> None:
        super().__init__()
        self._losses: deque[float] = deque(maxlen=2 * WINDOW_STEPS)
        self._step = 0
        self._first: float | None = None

    def _begin(self) -> None:
        self._losses.clear()
        self._step = self._resumed

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        if not math.isfinite(event.loss):
            return None
        self._first = event.loss if self._first is None else self._first
        self._losses.append(event.loss)
        losses = list(self._losses)[-WINDOW_STEPS:]
        if event.step > EARLY * self._asked or len(self._losses) < 1.5 * WINDOW_STEPS:
            return None
        half = WINDOW_STEPS // 2
        before, now = median(losses[:half]), median(losses[half:])
        least = max(_FALLING * abs(before), NOISE * pstdev(losses))
        if self._first < now * (1 + FELL) or abs(before - now) > least:
            return None
        return self._found(
            event,
            event.step,
            f"the loss has stayed at {now:.3f} for {WINDOW_STEPS} steps",
            f"{before:.4f} and {now:.4f} are the medians of the two halves",
            f"{event.step} of {self._asked} steps are done, learning rate {event.learning_rate:g}",
            advice=("look at the schedule of the learning rate, and at the data",),
        )
