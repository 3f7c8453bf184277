"""The norm of the gradient is far above anything before it.

Source: AutoTrainer (Zhang et al. 2021) takes 70 times between layers as exploding; here the whole
norm is held against its own past, 100 times the median of 50 steps, as ZClip (Kumar et al. 2025,
arXiv 2504.02507) holds it against a running mean.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import Event, Finding, Repair, StepDone
from cnai.monitor.detectors.speaker import Run, Speaker

FIRST_STEPS = 20
FIRST_NORM = 1e3
WINDOW_STEPS = 50
TIMES = 100.0
LEAST_NORM = 10.0
PERSISTENCE_STEPS = 2


class Exploding(Speaker):
    """Speaks when the norm is above 1e3 at the start, or 100 medians and 10, two steps in a row."""

    name: ClassVar[str] = "exploding"

    def __init__(self) -> None:
        super().__init__()
        self._window: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._high = Run(PERSISTENCE_STEPS)
        self._step = 0

    def _begin(self) -> None:
        self._window.clear()
        self._step = self._resumed

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, StepDone) or event.step <= self._step:
            return None
        self._step = event.step
        norm = event.grad_norm
        if not math.isfinite(norm):
            return None
        limit = FIRST_NORM
        if len(self._window) >= FIRST_STEPS:
            limit = max(LEAST_NORM, TIMES * median(self._window))
        high = norm > limit
        if not high:
            self._window.append(norm)
        if not self._high.is_long(high):
            return None
        return self._found(
            event,
            event.step,
            f"the gradient norm is {norm:.3g}, {norm / limit:.1f} times the limit",
            f"limit {limit:.3g} out of the {len(self._window)} steps before",
            advice=(
                Repair(title="clip the gradient", spec_patch={"train.clip_norm": 1.0}),
                "look at the scale of the initial weights",
            ),
        )
