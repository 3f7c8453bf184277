"""The model does no better than one that knows only how often each target occurs.

That is what is left to learn where inputs and targets do not belong together: labels that were
shuffled, or rows that were matched wrongly.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import Event, Finding, RankMeasured, StepDone
from cnai.monitor.detectors.speaker import Speaker

STEPS = 60
WINDOW_STEPS = 40
NEAR = 0.997
"""Share of the chance level below which a model knows something."""
ABOVE = 0.2
FALL = 0.02
"""Nats by which a loss that is still falling falls over the window."""


class Chance(Speaker):
    """Speaks when the loss has settled at chance after 60 steps."""

    name: ClassVar[str] = "labels_shuffled"

    def __init__(self) -> None:
        super().__init__()
        self._window: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._chance: float | None = None
        self._step = 0

    def _begin(self) -> None:
        self._window.clear()
        self._step = self._resumed

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, RankMeasured) and event.chance_loss is not None:
            self._chance = event.chance_loss
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        if math.isfinite(event.loss):
            self._window.append(event.loss)
        if self._chance is None or event.step < STEPS or len(self._window) < WINDOW_STEPS:
            return None
        losses = list(self._window)
        half = WINDOW_STEPS // 2
        before, now = median(losses[:half]), median(losses[half:])
        near = NEAR * self._chance <= now <= self._chance + ABOVE
        if not near or now < before - FALL:
            return None
        return self._found(
            event,
            event.step,
            f"the loss stays at {now:.3f}; guessing by frequency gives {self._chance:.3f}",
            f"it fell by {before - now:.3f} over {WINDOW_STEPS} steps",
            advice=("look whether each row's target belongs to its input",),
        )
