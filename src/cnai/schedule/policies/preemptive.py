"""Preemptive order: jobs of a lower class may take the machines of jobs of a higher one.

The class comes from a function, so least attained service, shortest remaining time and our own
order are the same walk with other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import Action, Reason
from cnai.schedule.draft import Draft
from cnai.schedule.jobs import State
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.queues import Quota
from cnai.schedule.view import ClusterView

Floats = NDArray[np.float64]
Ranks = Callable[[ClusterView, float], Floats]


@dataclass
class Preemptive:
    """Keep the jobs of the lowest classes running, within the machines that there are.

    Attributes:
        ranks: Gives the class of every row; only a strictly lower one may stop another.
        quantum_seconds: How often to look again while jobs wait.
    """

    ranks: Ranks
    name: str
    quantum_seconds: float = 300.0
    scorer: Scorer = field(default_factory=BestFit)

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Fill what is free, then let lower classes push higher ones out."""
        waiting = view.waiting()
        if not waiting.size:
            return []
        ranks = self.ranks(view, now)
        draft = Draft(view, trial, self.scorer)
        admit(draft, waiting, ranks)
        return draft.actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return the next look, never when nobody waits."""
        return now + self.quantum_seconds if (view.jobs.state == State.WAITING).any() else np.inf


def admit(draft: Draft, waiting: NDArray[np.int64], ranks: Floats) -> None:
    """Walk over the jobs that wait in the order of their class, then of arrival.

    Victims are the highest classes first and the last started among equals. After all starts,
    every victim that can still have its own places keeps them.
    """
    jobs = draft.view.jobs
    victims = _Victims(draft, ranks)
    quota = quota_of(draft.view)
    order = waiting[np.lexsort((jobs.serial[waiting], ranks[waiting], -jobs.priority[waiting]))]
    sizes, classes = jobs.size_milli[order], ranks[order]
    free = float(draft.view.nodes.free_milli)
    for index in np.flatnonzero(sizes <= free + victims.reach(classes)).tolist():
        place, size, own = int(order[index]), float(sizes[index]), float(classes[index])
        queue = jobs.rows[place].queue
        if quota and quota.blocker(queue, size):
            continue
        free += victims.release(size - free, own)
        reason = Reason("lowest_class", {"class": own})
        if free >= size and draft.start(place, int(jobs.asked[place]), reason):
            free -= size
            if quota:
                quota.add(queue, size)
    victims.settle()


def quota_of(view: ClusterView) -> Quota | None:
    """Return what the queues hold, None where none was declared."""
    if not view.queues:
        return None
    held: dict[str, float] = {}
    milli = view.jobs.held_milli
    for place in view.running().tolist():
        queue = view.jobs.rows[place].queue
        held[queue] = held.get(queue, 0.0) + float(milli[place])
    return Quota(view.queues, held)


class _Victims:
    """The running jobs in the order in which they would have to go."""

    def __init__(self, draft: Draft, ranks: Floats) -> None:
        jobs = draft.view.jobs
        running = draft.view.running()
        rows = running[np.lexsort((-jobs.since[running], -ranks[running]))]
        self._draft = draft
        self._ranks = ranks[rows]
        self._held = jobs.held_milli[rows]
        self._rows = rows.tolist()
        self._gone = 0

    def reach(self, classes: Floats) -> Floats:
        """Return how much each class could push out at most."""
        sums = np.concatenate([[0.0], np.cumsum(self._held)])
        return np.asarray(sums[np.searchsorted(-self._ranks, -classes, side="left")])

    def release(self, milli: float, own: float) -> float:
        """Give back jobs of classes above `own` until so much is free; return what became free."""
        freed = 0.0
        while freed < milli and self._gone < len(self._rows) and self._ranks[self._gone] > own:
            self._draft.release(self._rows[self._gone])
            freed += float(self._held[self._gone])
            self._gone += 1
        return freed

    def settle(self) -> None:
        """Let those keep their places whose places nobody took; the others have to wait."""
        for index in reversed(range(self._gone)):
            place = self._rows[index]
            if not self._draft.keep(place):
                reason = Reason("pushed_out", {"class": float(self._ranks[index])})
                self._draft.preempt(place, reason)
