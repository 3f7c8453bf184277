"""No step for much longer than steps take."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    Event,
    Finding,
    RankFailed,
    RankLost,
    RankReady,
    Repair,
    RunEnded,
    StepDone,
)

LEAST_SECONDS = 60.0
STEPS = 10
WARM_UP_STEPS = 3


class Stalled:
    """Speaks once when no rank has finished a step for max(60 s, 10 median steps).

    Args:
        least_seconds: Instead of the 60 s.

    It needs ticks, since a hung run writes nothing. A rank that starts, a checkpoint and a new
    attempt count as life; after a loss or the end of the run it waits for the next step.
    """

    name: ClassVar[str] = "stalled"

    def __init__(self, least_seconds: float = LEAST_SECONDS) -> None:
        self._least_seconds = least_seconds
        self._seconds: deque[float] = deque(maxlen=20)
        self._last_unix: float | None = None
        self._steps: dict[int, int] = {}

    def update(self, event: Event) -> Finding | None:
        """Look at the time between signs of life."""
        match event:
            case StepDone():
                self._seconds.append(event.step_seconds)
                self._steps[event.rank] = event.step
                self._last_unix = event.time_unix
                return None
            case AttemptStarted():
                self._steps = {}
                self._last_unix = None
                return None
            case RankLost() | RankFailed() | RunEnded():
                self._last_unix = None
                return None
            case CheckpointSaved() | RankReady() if self._last_unix is not None:
                self._last_unix = event.time_unix
                return None
        return self._judge(event)

    def _judge(self, event: Event) -> Finding | None:
        if self._last_unix is None or len(self._seconds) < WARM_UP_STEPS:
            return None
        usual = median(self._seconds)
        silent = event.time_unix - self._last_unix
        if silent <= max(self._least_seconds, STEPS * usual):
            return None
        self._last_unix = None
        behind = self._behind()
        step = max(self._steps.values())
        who = (
            f"; rank {behind} is behind, at step {self._steps[behind]}"
            if behind is not None
            else ""
        )
        return Finding(
            time_unix=event.time_unix,
            detector=self.name,
            severity="critical",
            message=f"no step for {silent:.0f} s after step {step}{who}",
            step=step,
            rank=behind,
            evidence=(f"a step usually takes {usual:.2f} s",),
            repairs=(
                Repair(title="see where each rank stands; the one behind holds up the others"),
                Repair(title="stop the run and run it again from its checkpoint", safe=True),
            ),
        )

    def _behind(self) -> int | None:
        """Return the rank with the fewest steps, None when several have as few."""
        least = min(self._steps.values())
        ranks = [rank for rank, step in self._steps.items() if step == least]
        return ranks[0] if len(ranks) == 1 else None
