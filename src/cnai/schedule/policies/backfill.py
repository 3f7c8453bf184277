"""Greedy backfill: in some order, whatever fits starts; nobody is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import Action, Reason
from cnai.schedule.draft import Draft
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.view import ClusterView

Order = Callable[[ClusterView], NDArray[np.float64]]


def by_arrival(view: ClusterView) -> NDArray[np.float64]:
    """Return the key of first come, first served."""
    return view.jobs.arrived


def by_true_time(view: ClusterView) -> NDArray[np.float64]:
    """Return the key of shortest job first, which nobody can know outside a simulation."""
    return view.jobs.oracle_left


@dataclass
class Backfill:
    """Start every job that fits, smallest key first; large gangs may wait for ever."""

    order: Order = by_arrival
    scorer: Scorer = field(default_factory=BestFit)
    name: str = "backfill"

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Start what fits."""
        draft = Draft(view, trial, self.scorer)
        waiting = view.waiting()
        if not waiting.size:
            return []
        free = view.nodes.free_milli
        sizes = view.jobs.size_milli[waiting]
        keys = self.order(view)[waiting]
        ranked = np.lexsort((waiting, keys))
        for place, size in zip(waiting[ranked].tolist(), sizes[ranked].tolist(), strict=True):
            if size <= free and draft.start(
                place, int(view.jobs.asked[place]), Reason("fits_now", {"key": float(size)})
            ):
                free -= int(size)
        return draft.actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return never: only arrivals and ends matter."""
        return inf
