"""The one door of the brain: a view, a moment and a policy go in, actions come out."""

from __future__ import annotations

from typing import Protocol

from cnai.schedule.actions import Action
from cnai.schedule.nodes import Trial, trial_of
from cnai.schedule.view import ClusterView


class Policy(Protocol):
    """How to decide. State that it keeps is memory of computations, never of the past."""

    name: str

    def decide(self, view: ClusterView, now: float, trial: Trial) -> list[Action]:
        """Return what to do now; machines are taken and given on the trial alone."""
        ...

    def wake(self, view: ClusterView, now: float) -> float:
        """Return when to ask again although nothing happened; infinity means never."""
        ...


def decide(view: ClusterView, now: float, policy: Policy) -> list[Action]:
    """Ask a policy what to do now.

    The same view, moment and seed give the same actions, and the view is left as it was. Actions
    are meant to be done in their order: what is given back comes before what is taken.

    Raises:
        OverCommitError: The policy gave away what is not there.
    """
    with trial_of(view.nodes) as trial:
        return policy.decide(view, now, trial)
