"""Plays jobs against a policy: the same `decide` as on a cluster, with the time made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cnai.schedule.actions import Action, Evict, Migrate, Preempt, Resize, Start
from cnai.schedule.decide import Policy, decide
from cnai.schedule.jobs import JobRow
from cnai.schedule.ledger import Ledger
from cnai.schedule.nodes import NodeRow, Nodes
from cnai.schedule.phases import keeps_machines
from cnai.schedule.queues import Queues
from cnai.schedule.simulation.outcome import JobOutcome, Outcome, Track
from cnai.schedule.view import ClusterView

PROGRESS_EVERY = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPhase:
    """A part of a job that needs other resources than the next.

    Attributes:
        row: The job as it stands in this phase.
        seconds: True time that the phase takes with `row.workers` workers.
    """

    row: JobRow
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A job with its truth, which no policy sees."""

    name: str
    arrives: float
    phases: tuple[SimulatedPhase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """A node comes or goes."""

    time: float
    node: int
    up: bool


@dataclass(slots=True)
class _Life:
    """What the engine alone knows of an active job.

    Attributes:
        owes: Whether its next start pays for a restart.
    """

    job: SimulatedJob
    phase: int = 0
    left: float = 0.0
    ready: float = 0.0
    speed: float = 0.0
    finish: float = float("inf")
    started: float | None = None
    gpu_seconds: float = 0.0
    owes: bool = False
    restarts: int = 0
    resizes: int = 0
    held_since: float = 0.0


@dataclass(kw_only=True)
class Simulation:
    """One policy on one trace.

    Attributes:
        knows_truth: Whether policies may see true times; only for yardsticks.
        restart_seconds: Time that a job loses when it goes on after a stop or with another size.
        until: Moment at which the simulation is left as it stands.
        on_progress: Gets finished and all jobs now and then.
    """

    nodes: Sequence[NodeRow]
    jobs: Sequence[SimulatedJob]
    policy: Policy
    queues: Queues = field(default_factory=Queues)
    node_events: Sequence[NodeEvent] = ()
    restart_seconds: float = 30.0
    knows_truth: bool = False
    until: float = float("inf")
    on_progress: Callable[[int, int], None] = lambda _done, _all: None
    on_decision: Callable[[ClusterView, float, list[Action]], None] | None = None

    def __post_init__(self) -> None:
        self.view = ClusterView(
            nodes=Nodes(self.nodes), queues=self.queues, restart_seconds=self.restart_seconds
        )
        self.now = 0.0
        self._lives: list[_Life] = []
        self._finish = np.empty(64)
        self._done: list[JobOutcome] = []
        self.ledger = Ledger(self.view.nodes)
        self.track = Track()
        self.decisions = 0

    def run(self) -> Outcome:
        """Play until every job has ended, or nothing can go on any more."""
        coming = sorted(self.jobs, key=lambda job: job.arrives)
        events = sorted(self.node_events, key=lambda event: event.time)
        next_job, next_event, wake = 0, 0, np.inf
        if coming:
            self.now = min(coming[0].arrives, events[0].time if events else np.inf)
            self.ledger.open(self.now)
        while next_job < len(coming) or self._lives:
            due = coming[next_job].arrives if next_job < len(coming) else np.inf
            happens = events[next_event].time if next_event < len(events) else np.inf
            moment = min(due, self._next_finish(), wake, happens)
            if moment == np.inf or moment > self.until:
                break
            self._advance(max(moment, self.now))
            self._finish_due()
            while next_event < len(events) and events[next_event].time <= self.now:
                self._node(events[next_event])
                next_event += 1
            while next_job < len(coming) and coming[next_job].arrives <= self.now:
                self._arrive(coming[next_job])
                next_job += 1
            self._decide()
            wake = self.policy.wake(self.view, self.now)
            if self.decisions % PROGRESS_EVERY == 0:
                self.on_progress(len(self._done), len(coming))
        self.ledger.close(self.now)
        return Outcome(
            policy=self.policy.name,
            jobs=tuple(self._done),
            unfinished=len(self._lives) + len(coming) - next_job,
            seconds=self.now - (coming[0].arrives if coming else 0.0),
            track=self.track,
            ledger=self.ledger,
            decisions=self.decisions,
        )

    def _next_finish(self) -> float:
        size = len(self._lives)
        return float(self._finish[:size].min()) if size else np.inf

    def _advance(self, moment: float) -> None:
        seconds = moment - self.now
        if seconds > 0:
            jobs = self.view.jobs
            held = jobs.held_milli
            jobs.attained += held * (seconds / 1000.0)
            if self.queues:
                names = self.view.jobs.queues
                sums = np.bincount(jobs.queue, weights=held, minlength=len(names))
                self.queues.charge(dict(zip(names, sums.tolist(), strict=True)), seconds)
        self.now = moment

    def _arrive(self, job: SimulatedJob) -> None:
        self.view.jobs.add(self._row(job, 0), self.now)
        self._lives.append(_Life(job=job, left=job.phases[0].seconds))
        self._mark(len(self._lives) - 1)

    def _row(self, job: SimulatedJob, phase: int) -> JobRow:
        return job.phases[phase].row

    def _mark(self, place: int) -> None:
        if place >= len(self._finish):
            self._finish = np.concatenate([self._finish, np.full(len(self._finish), np.inf)])
        self._finish[place] = self._lives[place].finish

    def _finish_due(self) -> None:
        size = len(self._lives)
        due = np.flatnonzero(self._finish[:size] <= self.now)
        ended = [place for place in due.tolist() if not self._next_phase(place)]
        for place in ended:
            self._record(place)
        if ended:
            gone = set(ended)
            self.view.jobs.remove(ended)
            self._lives = [life for place, life in enumerate(self._lives) if place not in gone]
            keep = np.ones(size, dtype=np.bool_)
            keep[ended] = False
            self._finish[: len(self._lives)] = self._finish[:size][keep]

    def _next_phase(self, place: int) -> bool:
        """Let a job go on in its next phase; False when it has ended."""
        life = self._lives[place]
        self._settle(place)
        if life.phase + 1 == len(life.job.phases):
            self.view.stop(place, self.now)
            return False
        life.phase += 1
        phase = life.job.phases[life.phase]
        before = self.view.jobs.rows[place]
        life.left = phase.seconds
        expected = phase.row.declared_seconds
        if keeps_machines(before, phase.row, expected, self.restart_seconds):
            self._go_on(place, before, phase.row)
        else:
            self.view.stop(place, self.now)
            life.owes = life.owes or bool(before.demand.gpus)
            life.finish = np.inf
            self.view.jobs.change_phase(place, phase.row, self.now)
            self._mark(place)
        return True

    def _go_on(self, place: int, before: JobRow, row: JobRow) -> None:
        """Let a job begin its next phase on the machines that it has."""
        held = replace(row, demand=before.demand, workers=before.workers)
        self.view.jobs.change_phase(place, held, float(self.view.jobs.since[place]))
        self._run(place, max(0.0, self._lives[place].ready - self.now))

    def _run(self, place: int, delay: float) -> None:
        """Set how fast a job that holds machines works, and when it will have ended."""
        life, row = self._lives[place], self.view.jobs.rows[place]
        workers = int(self.view.jobs.workers[place])
        life.speed = row.curve.speed(workers) / row.curve.speed(row.workers) if row.curve else 1.0
        life.ready = self.now + delay
        life.held_since = self.now
        life.finish = life.ready + max(life.left, 0.0) / life.speed
        self._mark(place)

    def _record(self, place: int) -> None:
        life, jobs = self._lives[place], self.view.jobs
        self.view.history.add(float(jobs.attained[place]))
        self._done.append(
            JobOutcome(
                name=life.job.name,
                group=jobs.rows[place].group,
                gpus=jobs.rows[place].demand.total_milli * jobs.rows[place].workers / 1000.0,
                arrived=life.job.arrives,
                started=life.started if life.started is not None else self.now,
                ended=self.now,
                gpu_seconds=life.gpu_seconds,
                resizes=life.resizes,
                restarts=life.restarts,
            )
        )

    def _settle(self, place: int) -> None:
        """Book what a job did since it was last started or resized."""
        life = self._lives[place]
        jobs = self.view.jobs
        if not jobs.slots[place]:
            return
        life.left -= max(0.0, self.now - life.ready) * life.speed
        row = jobs.rows[place]
        held = row.demand.total_milli * int(jobs.workers[place])
        life.gpu_seconds += held * (self.now - life.held_since) / 1000.0
        lost = max(0.0, min(life.ready, self.now) - life.held_since)
        self.ledger.book(row, jobs.slots[place], life.held_since, self.now, lost)

    def _node(self, event: NodeEvent) -> None:
        if not event.up:
            holding = [
                place
                for place, slots in enumerate(self.view.jobs.slots)
                if any(slot.node == event.node for slot in slots)
            ]
            for place in holding:
                self._stop(place)
        self.ledger.node(event.node, self.now, up=event.up)
        self.view.nodes.set_up(event.node, up=event.up)

    def _stop(self, place: int) -> None:
        life = self._lives[place]
        self._settle(place)
        self.view.stop(place, self.now)
        self.view.jobs.restarts[place] += 1
        life.restarts += 1
        life.owes = True
        life.finish = np.inf
        self._mark(place)

    def _decide(self) -> None:
        if self.knows_truth:
            self._tell_truth()
        actions = decide(self.view, self.now, self.policy)
        self.decisions += 1
        if self.on_decision:
            self.on_decision(self.view, self.now, actions)
        if actions:
            where = {row.name: place for place, row in enumerate(self.view.jobs.rows)}
            for action in actions:
                self._do(action, where[action.job])
        self.track.add(self.now, self.view)

    def _tell_truth(self) -> None:
        for place, life in enumerate(self._lives):
            done = max(0.0, self.now - life.ready) * life.speed if life.finish < np.inf else 0.0
            self.view.jobs.oracle_left[place] = life.left - done

    def _do(self, action: Action, place: int) -> None:
        life, jobs = self._lives[place], self.view.jobs
        self._settle(place)
        self.view.apply(action, place, self.now)
        if isinstance(action, (Preempt, Evict)):
            life.restarts += 1
            life.owes = True
            life.finish = np.inf
            self._mark(place)
        elif isinstance(action, (Start, Resize, Migrate)):
            life.resizes += isinstance(action, Resize)
            life.restarts += isinstance(action, Migrate)
            if life.started is None:
                life.started = self.now
            owes = not isinstance(action, Start) or (life.owes and jobs.rows[place].demand.gpus)
            self._run(place, self.restart_seconds if owes else 0.0)
            life.owes = life.owes and not owes
