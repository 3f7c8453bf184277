"""The learning rate jumps back up after it has fallen."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from cnai.core.events import Event, Finding, Reacted, StepDone
from cnai.monitor.detectors.speaker import Speaker

TIMES = 1.5
FALLEN = 0.9
"""Share of its peak below which a rate has begun to fall."""


class ScheduleReset(Speaker):
    """Speaks when the rate of a step is 1.5 times that of the step before, after the warm-up."""

    name: ClassVar[str] = "schedule_reset"

    def __init__(self) -> None:
        super().__init__()
        self._rates: dict[int, float] = {}
        self._peak = 0.0

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, Reacted):  # which changes the rate on purpose
            self._rates.clear()
        if not isinstance(event, StepDone):
            return None
        rate, before = event.learning_rate, self._rates.get(event.step - 1)
        self._rates[event.step] = rate
        self._rates.pop(event.step - 1000, None)
        self._peak = max(self._peak, rate)
        if before is None or not 0 < before < FALLEN * self._peak or rate <= TIMES * before:
            return None
        if before < rate and self._is_warm_up(event.step):
            return None
        return self._found(
            event,
            event.step,
            f"the learning rate jumped from {before:.3g} to {rate:.3g}",
            f"{rate / before:.1f} times in one step",
            advice=("let the schedule go on from the step of the run, not from 0",),
        )

    def _is_warm_up(self, step: int) -> bool:
        """Tell whether the rate has never fallen until now."""
        seen = [self._rates[one] for one in sorted(self._rates) if one <= step]
        return all(before <= after for before, after in pairwise(seen))
