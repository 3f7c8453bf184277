"""All ranks wait for data: the store or the loader cannot keep up."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import Event, Finding, StepDone
from cnai.monitor.detectors.speaker import Speaker

WINDOW_STEPS = 10
SHARE = 0.2
SECONDS = 0.02
"""A shorter wait is the noise of a busy machine, however short the steps are."""


class SlowData(Speaker):
    """Speaks when the rank that waits least waits 20 % of the step, median of 10 steps."""

    name: ClassVar[str] = "slow_data"

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[int, deque[tuple[float, float]]] = {}

    def _begin(self) -> None:
        self._waits.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, StepDone):
            return None
        waits = self._waits.setdefault(event.rank, deque(maxlen=WINDOW_STEPS))
        waits.append((event.data_wait_seconds, event.step_seconds))
        if any(len(one) < WINDOW_STEPS for one in self._waits.values()):
            return None
        least = min(median(wait for wait, _ in one) for one in self._waits.values())
        step = median(seconds for _, seconds in waits)
        if least <= max(SECONDS, SHARE * step):
            return None
        return self._found(
            event,
            event.step,
            f"every rank waits {least:.3f} s of a step of {step:.3f} s for data",
            f"medians over {WINDOW_STEPS} steps",
            advice=("look at the store and at the disk of its cache",),
        )
