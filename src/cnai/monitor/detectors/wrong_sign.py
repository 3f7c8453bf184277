"""The loss rises steadily: what is followed is the gradient of something else, or uphill."""

from __future__ import annotations

import math
from collections import deque
from statistics import fmean, median
from typing import ClassVar

from cnai.core.events import Event, Finding, StepDone
from cnai.monitor.detectors.speaker import Speaker

WINDOW_STEPS = 20
NATS = 0.3
RISING_SHARE = 0.7
"""Share of the steps of the window that are above the one five steps before."""
_BACK = 5


class WrongSign(Speaker):
    """Speaks when the loss rose almost all the time for 20 steps, above where it began."""

    name: ClassVar[str] = "wrong_sign"

    def __init__(self) -> None:
        super().__init__()
        self._window: deque[float] = deque(maxlen=WINDOW_STEPS + _BACK)
        self._first: list[float] = []
        self._step = 0

    def _begin(self) -> None:
        self._window.clear()
        self._step = self._resumed

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        if not math.isfinite(event.loss):
            return None
        self._window.append(event.loss)
        if len(self._first) < 3:
            self._first.append(event.loss)
        losses = list(self._window)
        if len(losses) < WINDOW_STEPS + _BACK:
            return None
        begun, now = median(self._first), median(losses[-_BACK:])
        rising = fmean(
            after > before for before, after in zip(losses, losses[_BACK:], strict=False)
        )
        if rising < RISING_SHARE or now < begun + NATS or now < losses[0] + NATS:
            return None
        return self._found(
            event,
            event.step,
            f"the loss rises steadily, from {begun:.3f} to {now:.3f}",
            f"{rising:.0%} of the last {WINDOW_STEPS} steps above the ones {_BACK} before",
            advice=("look at the sign of the loss, and at what the optimizer is given",),
            critical=True,
        )
