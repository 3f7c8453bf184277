"""EASY backfill: the first that waits has a reservation, others may only fill the time before it.

Source: Lifka 1995, "The ANL/IBM SP Scheduling System"; Mu'alem and Feitelson 2001, "Utilization,
Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import Action, Reason
from cnai.schedule.draft import Draft
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.view import ClusterView


def expected_seconds(view: ClusterView) -> NDArray[np.float64]:
    """Return the seconds that each job still needs at its size: true, declared or expected."""
    jobs, history = view.jobs, view.history
    bins = np.searchsorted(history.bounds, jobs.attained, side="right") - 1
    expected = history.remaining()[bins] / np.maximum(jobs.size_milli / 1000.0, 1e-9)
    told = np.where(np.isnan(jobs.oracle_left), jobs.declared_left, jobs.oracle_left)
    return np.where(np.isnan(told), expected, told)


@dataclass
class Easy:
    """First come, first served, with holes filled as long as the first is not delayed."""

    scorer: Scorer = field(default_factory=BestFit)
    name: str = "easy"

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Start the first in line, then what ends before its turn or leaves it its room."""
        draft = Draft(view, trial, self.scorer)
        waiting = view.waiting()
        jobs = view.jobs
        first = 0
        for place in waiting.tolist():
            if not draft.start(place, int(jobs.asked[place]), Reason("first_in_line")):
                break
            first += 1
        rest = waiting[first:]
        if rest.size < 2 or not view.nodes.free_milli:
            return draft.actions
        left = expected_seconds(view)
        shadow, spare = self._reservation(draft, int(rest[0]), left)
        sizes = jobs.size_milli[rest[1:]]
        short = left[rest[1:]] <= shadow
        good = (sizes <= view.nodes.free_milli) & (short | (sizes <= spare))
        for index in np.flatnonzero(good).tolist():
            place, size = int(rest[1 + index]), float(sizes[index])
            if not short[index] and size > spare:
                continue
            reason = Reason("fills_hole", {"head_starts_in_seconds": shadow})
            if draft.start(place, int(jobs.asked[place]), reason) and not short[index]:
                spare -= size
        return draft.actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return never: only arrivals and ends matter."""
        return inf

    @staticmethod
    def _reservation(draft: Draft, head: int, left: NDArray[np.float64]) -> tuple[float, float]:
        """Reserve for the first in line, counting those that this decision starts as running."""
        view = draft.view
        free = float(view.nodes.free_milli)
        rows = [*view.running().tolist(), *draft.held]
        sizes = view.jobs.size_milli[rows]
        ends = left[rows]
        order = np.argsort(ends, kind="stable")
        sums = free + np.cumsum(sizes[order])
        need = float(view.jobs.size_milli[head])
        at = int(np.searchsorted(sums, need))
        if at >= len(rows):
            return inf, 0.0
        return float(ends[order[at]]), float(sums[at] - need)
