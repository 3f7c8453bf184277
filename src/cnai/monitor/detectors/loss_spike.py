"""The loss jumps far above its recent course and stays there.

The deviation is measured against the median of the last 40 steps in units of their median absolute
deviation, which a few outliers do not move. A blip of one step is healthy. Source: the modified
z-score of Iglewicz and Hoaglin 1993, "How to Detect and Handle Outliers".
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import AttemptStarted, Event, Finding, Repair, StepDone

WINDOW_STEPS = 40
WARM_UP_STEPS = 20
SCORE = 8.0
NATS = 0.25
PERSISTENCE_STEPS = 2
COOL_DOWN_STEPS = 50
_MAD_TO_DEVIATION = 1.4826


class LossSpike:
    """Speaks when the loss is high for two steps in a row; then waits 50 steps."""

    name: ClassVar[str] = "loss_spike"

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._step = 0
        self._high = 0
        self._quiet_until = 0

    def update(self, event: Event) -> Finding | None:
        """Look at the loss of each new step."""
        if isinstance(event, AttemptStarted):
            self._step = min(self._step, event.resumed_step)
            self._high = 0
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        if not math.isfinite(event.loss):
            return None
        middle, deviation = self._course()
        rise = event.loss - middle
        if len(self._window) < WARM_UP_STEPS or rise <= max(NATS, SCORE * deviation):
            self._window.append(event.loss)
            self._high = 0
            return None
        self._high += 1
        return self._speak(event, middle, deviation)

    def _course(self) -> tuple[float, float]:
        if not self._window:
            return 0.0, 0.0
        middle = median(self._window)
        spread = median(abs(loss - middle) for loss in self._window)
        return middle, _MAD_TO_DEVIATION * spread

    def _speak(self, event: StepDone, middle: float, deviation: float) -> Finding | None:
        """Report the second high step, and take what follows as the new course."""
        if self._high < PERSISTENCE_STEPS:
            return None
        self._window.append(event.loss)
        if event.step < self._quiet_until:
            return None
        self._quiet_until = event.step + COOL_DOWN_STEPS
        score = (event.loss - middle) / deviation if deviation else math.inf
        return Finding(
            time_unix=event.time_unix,
            detector=self.name,
            severity="warning",
            message=f"loss rose from {middle:.3f} to {event.loss:.3f} by step {event.step}",
            step=event.step,
            evidence=(
                f"{score:.1f} deviations above the median of {WINDOW_STEPS} steps",
                f"gradient norm {event.grad_norm:g}, learning rate {event.learning_rate:g}",
            ),
            repairs=(
                Repair(title="go back to a checkpoint before it with a lower train.learning_rate"),
                Repair(title="look at the data of these steps"),
            ),
        )
