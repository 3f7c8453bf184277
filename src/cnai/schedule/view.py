"""What a decision is made from: machines, jobs, queues and services, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import Action, Evict, Migrate, Preempt, Resize, Start
from cnai.schedule.demand import Slot
from cnai.schedule.jobs import Jobs, State
from cnai.schedule.nodes import Nodes
from cnai.schedule.predict import History
from cnai.schedule.queues import Queues
from cnai.schedule.services import ServiceView


@dataclass(slots=True, kw_only=True)
class ClusterView:
    """The cluster as the brain sees it; drivers change it, `decide` never does.

    Attributes:
        history: What finished jobs took; policies learn from it, and from nothing else.
        restart_seconds: Time that a stopped or resized job loses.
    """

    nodes: Nodes
    jobs: Jobs = field(default_factory=Jobs)
    queues: Queues = field(default_factory=Queues)
    history: History = field(default_factory=History)
    services: list[ServiceView] = field(default_factory=list)
    restart_seconds: float = 30.0

    def running(self) -> NDArray[np.int64]:
        """Return the rows of the jobs that hold machines."""
        return np.flatnonzero(self.jobs.state == State.RUNNING)

    def waiting(self) -> NDArray[np.int64]:
        """Return the rows of the jobs that wait."""
        return np.flatnonzero(self.jobs.state == State.WAITING)

    def apply(self, action: Action, place: int, now: float) -> None:
        """Do to the view what a driver did to the cluster.

        Raises:
            OverCommitError: A slot is not free.
        """
        match action:
            case Start(slots=slots):
                self._start(place, slots, now)
            case Resize(slots=slots):
                self._free(place)
                self._hold(place, slots)
                self.jobs.changed[place] = now
                self.jobs.resizes[place] += 1
            case Migrate(slots=slots):
                self._free(place)
                self._hold(place, slots)
                self.jobs.changed[place] = now
                self.jobs.restarts[place] += 1
            case Preempt() | Evict():
                self.stop(place, now)
                self.jobs.restarts[place] += 1
            case _:
                pass

    def stop(self, place: int, now: float) -> None:
        """Take a job's machines; it waits from now on."""
        self._free(place)
        self.jobs.state[place] = State.WAITING
        self.jobs.since[place] = now

    def _start(self, place: int, slots: tuple[Slot, ...], now: float) -> None:
        jobs = self.jobs
        self._hold(place, slots)
        jobs.state[place] = State.RUNNING
        jobs.waited[place] += now - jobs.since[place]
        jobs.since[place] = jobs.changed[place] = now

    def _hold(self, place: int, slots: tuple[Slot, ...]) -> None:
        self.nodes.take(self.jobs.rows[place].demand, slots)
        self.jobs.slots[place] = slots
        self.jobs.workers[place] = sum(slot.workers for slot in slots)

    def _free(self, place: int) -> None:
        self.nodes.give(self.jobs.rows[place].demand, self.jobs.slots[place])
        self.jobs.slots[place] = ()
        self.jobs.workers[place] = 0
