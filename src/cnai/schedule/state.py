"""A cluster written down: machines, queues and jobs as one JSON file, to ask about later."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from cnai.core.errors import DataError
from cnai.schedule.demand import Demand, Slot
from cnai.schedule.jobs import JobRow, State
from cnai.schedule.nodes import NodeRow, Nodes, OverCommitError
from cnai.schedule.queues import Queue, Queues
from cnai.schedule.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job as it stands.

    Attributes:
        slots: Where it runs; empty while it waits.
        attained_gpu_seconds: GPU time that it has had.
        since: When it last began to wait or to run.
        left_seconds: Time that it still needs at its size, None when nobody told.
    """

    name: str
    demand: Demand
    workers: int
    least: int | None = None
    arrived: float = 0.0
    since: float = 0.0
    priority: int = 0
    queue: str = ""
    phase: str = "steady"
    attained_gpu_seconds: float = 0.0
    left_seconds: float | None = None
    slots: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The whole cluster at a moment."""

    now: float
    nodes: tuple[NodeRow, ...]
    jobs: tuple[JobState, ...]
    queues: tuple[Queue, ...] = ()


def state_of(view: ClusterView, nodes: tuple[NodeRow, ...], now: float) -> ClusterState:
    """Write down a view."""
    jobs = view.jobs
    states = [
        JobState(
            name=row.name,
            demand=row.demand,
            workers=row.workers,
            least=row.least,
            arrived=row.arrived,
            since=float(jobs.since[place]),
            priority=row.priority,
            queue=row.queue,
            phase=row.phase,
            attained_gpu_seconds=float(jobs.attained[place]),
            left_seconds=_told(float(jobs.declared_left[place])),
            slots=jobs.slots[place],
        )
        for place, row in enumerate(jobs.rows)
    ]
    queues = tuple(view.queues.table.values())
    return ClusterState(now=now, nodes=nodes, jobs=tuple(states), queues=queues)


def view_of(state: ClusterState, where: str) -> ClusterView:
    """Make a view again.

    Raises:
        DataError: Jobs hold more than there is.
    """
    view = ClusterView(nodes=Nodes(state.nodes), queues=Queues(state.queues))
    for job in state.jobs:
        place = view.jobs.add(_row(job), job.since)
        view.jobs.attained[place] = job.attained_gpu_seconds
        if not job.slots:
            continue
        try:
            view.nodes.take(job.demand, job.slots)
        except (OverCommitError, IndexError) as error:
            raise DataError(
                f"job `{job.name}` holds what is not there: {error}",
                where=where,
                hint="the state is damaged; write it down anew",
            ) from error
        view.jobs.slots[place] = job.slots
        view.jobs.workers[place] = sum(slot.workers for slot in job.slots)
        view.jobs.state[place] = State.RUNNING
    return view


def _row(job: JobState) -> JobRow:
    return JobRow(
        name=job.name,
        demand=job.demand,
        workers=job.workers,
        least=job.least,
        arrived=job.arrived,
        priority=job.priority,
        queue=job.queue,
        phase=job.phase,
        declared_seconds=float("nan") if job.left_seconds is None else job.left_seconds,
    )


def _told(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None
