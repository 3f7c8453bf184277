"""First come, first served: nobody overtakes, nobody is stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from cnai.schedule.actions import Action, Reason
from cnai.schedule.draft import Draft
from cnai.schedule.nodes import Trial
from cnai.schedule.placement.scores import BestFit, Scorer
from cnai.schedule.view import ClusterView


@dataclass
class Fifo:
    """Start the oldest job that waits; while it does not fit, nothing else starts."""

    scorer: Scorer = field(default_factory=BestFit)
    name: str = "fifo"

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Start jobs in order of arrival up to the first that does not fit."""
        draft = Draft(view, trial, self.scorer)
        for place in view.waiting().tolist():
            if not draft.start(place, int(view.jobs.asked[place]), Reason("first_in_line")):
                break
        return draft.actions

    def wake(self, view: ClusterView, now: float) -> float:
        """Return never: only arrivals and ends matter."""
        return inf
