"""One rank is much slower than the others, or waits much longer for its data; all wait for it.

In a synchronous step all ranks take equally long, because the fast ones wait for the slow one. What
tells them apart is what each does in the meantime: a slow rank computes, its victims wait. It is
judged by its time for one row, so that a rank from which rows were moved away is still seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from cnai.core.events import AttemptStarted, Event, Finding, Repair, StepDone

WINDOW_STEPS = 10
DATA_SHARE = 0.2
DATA_TIMES = 4.0
DATA_SECONDS = 0.02
"""A shorter wait is the noise of a busy machine, however short the steps are."""
COMPUTE_TIMES = 1.5
COMPUTE_SHARE = 0.2
"""Share of the step that a slow rank must compute for the others to notice."""
COMPUTE_SECONDS = 0.02
COOL_DOWN_STEPS = 100


@dataclass(frozen=True, slots=True)
class _Times:
    """What a rank did in a step; `row` is its computing time for one row."""

    own: float
    data: float
    compute: float
    row: float


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
        window = self._times.setdefault(event.rank, deque(maxlen=WINDOW_STEPS))
        window.append(
            _Times(
                event.step_seconds - event.data_wait_seconds,
                event.data_wait_seconds,
                event.compute_seconds,
                event.compute_seconds / (event.rows or 1),
            )
        )
        if event.step <= self._judged or event.step < self._quiet_until or not self._is_ready():
            return None
        self._judged = event.step
        finding = self._judge_data(event) or self._judge_computing(event)
        if finding is not None:
            self._quiet_until = event.step + COOL_DOWN_STEPS
        return finding

    def _is_ready(self) -> bool:
        windows = self._times.values()
        return len(windows) > 1 and all(len(window) == WINDOW_STEPS for window in windows)

    def _judge_data(self, event: StepDone) -> Finding | None:
        data = self._medians(lambda one: one.data)
        late, late_others = _slowest(data)
        step = data[late] + self._medians(lambda one: one.own)[late]
        if data[late] <= max(DATA_SECONDS, DATA_SHARE * step, DATA_TIMES * late_others):
            return None
        why = f"waits {data[late]:.3f} s a step for data, the others {late_others:.3f} s"
        return self._finding(event, late, why, "look at that rank's path to the data store")

    def _judge_computing(self, event: StepDone) -> Finding | None:
        rows = self._medians(lambda one: one.row)
        slow, others = _slowest(rows)
        compute = self._medians(lambda one: one.compute)[slow]
        step = self._medians(lambda one: one.own)[slow]
        if rows[slow] <= COMPUTE_TIMES * others:
            return None
        if compute <= max(COMPUTE_SECONDS, COMPUTE_SHARE * step):
            return None
        why = f"computes {rows[slow]:.3g} s for a row, the others {others:.3g} s"
        advice = (
            "look at that machine: its clock, its heat, what else runs on it; in a pipeline, "
            "`train.balance.layers` moves layers away"
        )
        return self._finding(event, slow, why, advice)

    def _medians(self, value: Callable[[_Times], float]) -> dict[int, float]:
        return {rank: median(map(value, window)) for rank, window in self._times.items()}

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
