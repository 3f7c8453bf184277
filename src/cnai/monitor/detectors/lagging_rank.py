"""One rank waits much longer for its data than the others, so that all wait for it.

In a synchronous step all ranks take equally long, because the fast ones wait for the slow one. What
tells them apart today is the time that each waits for data; a rank that computes slowly cannot be
seen before a step also says how long it waited in collectives.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import AttemptStarted, Event, Finding, Repair, StepDone

WINDOW_STEPS = 10
DATA_SHARE = 0.2
DATA_TIMES = 4.0
DATA_SECONDS = 0.02
"""A shorter wait is the noise of a busy machine, however short the steps are."""
COOL_DOWN_STEPS = 100

_Times = tuple[float, float]


class LaggingRank:
    """Speaks when a rank's median over 10 steps is far above the others', then waits 100 steps."""

    name: ClassVar[str] = "lagging_rank"

    def __init__(self) -> None:
        self._times: dict[int, deque[_Times]] = {}
        self._quiet_until = 0
        self._judged = 0

    def update(self, event: Event) -> Finding | None:
        """Look at each rank's own time once a step."""
        if isinstance(event, AttemptStarted):
            self._times = {}
            self._quiet_until = self._judged = 0
        if not isinstance(event, StepDone):
            return None
        own = event.step_seconds - event.data_wait_seconds
        window = self._times.setdefault(event.rank, deque(maxlen=WINDOW_STEPS))
        window.append((own, event.data_wait_seconds))
        if event.step <= self._judged or event.step < self._quiet_until or not self._is_ready():
            return None
        self._judged = event.step
        finding = self._judge(event)
        if finding is not None:
            self._quiet_until = event.step + COOL_DOWN_STEPS
        return finding

    def _is_ready(self) -> bool:
        windows = self._times.values()
        return len(windows) > 1 and all(len(window) == WINDOW_STEPS for window in windows)

    def _judge(self, event: StepDone) -> Finding | None:
        data = {rank: median(t[1] for t in window) for rank, window in self._times.items()}
        late, late_others = _slowest(data)
        step = data[late] + median(t[0] for t in self._times[late])
        if data[late] <= max(DATA_SECONDS, DATA_SHARE * step, DATA_TIMES * late_others):
            return None
        why = f"waits {data[late]:.3f} s a step for data, the others {late_others:.3f} s"
        return self._finding(event, late, why, "look at that rank's path to the data store")

    def _finding(self, event: StepDone, rank: int, why: str, advice: str) -> Finding:
        return Finding(
            time_unix=event.time_unix,
            detector=self.name,
            severity="warning",
            message=f"rank {rank} {why}",
            step=event.step,
            rank=rank,
            evidence=(f"medians over {WINDOW_STEPS} steps of {len(self._times)} ranks",),
            repairs=(Repair(title=advice),),
        )


def _slowest(times: dict[int, float]) -> tuple[int, float]:
    """Return the slowest rank and the median of the others."""
    slowest = max(times, key=lambda rank: times[rank])
    return slowest, median(seconds for rank, seconds in times.items() if rank != slowest)
