"""Why a job waits: the first thing in its way, who holds that, until when, what would help."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cnai.core.errors import SpecError
from cnai.schedule.demand import Demand
from cnai.schedule.jobs import State
from cnai.schedule.nodes import trial_of
from cnai.schedule.placement.gang import place_gang
from cnai.schedule.placement.scores import BestFit
from cnai.schedule.policies.easy import expected_seconds
from cnai.schedule.policies.preemptive import quota_of
from cnai.schedule.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What stands in the way of a job.

    Attributes:
        code: The first constraint that fails: `running`, `no_model`, `no_node`, `too_large`,
            `queue_limit`, `no_room`, or `next` when nothing is in its way.
        message: The same in a sentence, with the numbers.
        blockers: Jobs that hold what it needs, those that end first.
        start_in_seconds: Estimate; None when it can never start as it is.
        change: The smallest change that would let it start now; empty when there is none.
    """

    job: str
    state: str
    code: str
    message: str
    blockers: tuple[str, ...] = ()
    start_in_seconds: float | None = None
    change: str = ""


def explain(view: ClusterView, name: str) -> Explanation:
    """Explain one job; the view is left as it was.

    The estimate takes what the jobs told, else what finished jobs took, and nobody overtakes.

    Raises:
        SpecError: No job has this name.
    """
    try:
        place = view.jobs.place_of(name)
    except KeyError as error:
        known = ", ".join(row.name for row in view.jobs.rows[:5])
        raise SpecError(
            f"no job is called `{name}`", where="JOB", hint=f"jobs there are: {known or 'none'}"
        ) from error
    if view.jobs.state[place] == State.RUNNING:
        workers = int(view.jobs.workers[place])
        return Explanation(
            job=name, state="running", code="running", message=f"it runs with {workers} workers",
            start_in_seconds=0.0,
        )  # fmt: skip
    return _never(view, place) or _limited(view, place) or _crowded(view, place)


def _never(view: ClusterView, place: int) -> Explanation | None:
    """Whether even the empty cluster could not take it."""
    nodes, row = view.nodes, view.jobs.rows[place]
    demand = row.demand
    if demand.models and not nodes.mask(demand.models).any():
        there = sorted({model for model in nodes.models if model})
        return _waiting(row.name, "no_model", f"no node has {' or '.join(demand.models)}",
                        change=f"allow another model: {', '.join(there)}")  # fmt: skip
    room = _empty_room(view, demand)
    if not room.any():
        return _waiting(
            row.name, "no_node", f"no node is large enough for one worker ({_words(demand)})",
            change=f"ask for at most {nodes.widest} GPUs, {int(nodes.cpu.max(initial=0))} "
            f"thousandths of cores and {int(nodes.memory.max(initial=0))} MiB a worker",
        )  # fmt: skip
    if int(room.sum()) < row.workers:
        return _waiting(
            row.name, "too_large",
            f"{row.workers} workers are asked for, the empty cluster holds {int(room.sum())}",
            change=f"ask for {int(room.sum())} workers or fewer",
        )  # fmt: skip
    return None


def _empty_room(view: ClusterView, demand: Demand) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many workers each node would hold if nobody were there."""
    with trial_of(view.nodes) as trial:
        for place in view.running().tolist():
            trial.give(view.jobs.rows[place].demand, view.jobs.slots[place])
        return np.asarray(view.nodes.room(demand))


def _limited(view: ClusterView, place: int) -> Explanation | None:
    """Whether a limit of a queue stands in its way."""
    quota = quota_of(view)
    row, size = view.jobs.rows[place], float(view.jobs.size_milli[place])
    queue = quota.blocker(row.queue, size) if quota else None
    if quota is None or queue is None:
        return None
    limit = (view.queues.queue(queue).limit_milli or 0) / 1000
    held = quota.held.get(queue, 0.0) / 1000
    inside = [
        one for one in view.running().tolist()
        if queue in view.queues.chain(view.jobs.rows[one].queue)
    ]  # fmt: skip
    left = expected_seconds(view)
    inside.sort(key=lambda one: float(left[one]))
    free = held
    wait: float | None = None
    for one in inside:
        free -= float(view.jobs.held_milli[one]) / 1000
        if free + size / 1000 <= limit:
            wait = float(left[one])
            break
    return _waiting(
        row.name, "queue_limit",
        f"queue `{queue}` may hold {limit:g} GPUs and holds {held:g}; the job asks for "
        f"{size / 1000:g} more",
        blockers=tuple(view.jobs.rows[one].name for one in inside[:5]), start=wait,
        change=f"raise the limit of `{queue}` to {held + size / 1000:g} GPUs, or use another queue",
    )  # fmt: skip


def _crowded(view: ClusterView, place: int) -> Explanation:
    """Whether others hold what it needs; gives back in the order of their expected ends."""
    row = view.jobs.rows[place]
    scorer = BestFit()
    if place_gang(view.nodes, row.demand, row.workers, scorer):
        return _waiting(row.name, "next", "there is room for it; it starts at the next decision",
                        start=0.0)  # fmt: skip
    fits = _largest_that_fits(view, place)
    left = expected_seconds(view)
    order = sorted(view.running().tolist(), key=lambda one: float(left[one]))
    blockers: list[str] = []
    wait: float | None = None
    with trial_of(view.nodes) as trial:
        for one in order:
            trial.give(view.jobs.rows[one].demand, view.jobs.slots[one])
            blockers.append(view.jobs.rows[one].name)
            if place_gang(view.nodes, row.demand, row.workers, scorer):
                wait = float(left[one])
                break
    free = view.nodes.free_milli / 1000
    return _waiting(
        row.name, "no_room",
        f"it needs {row.workers} workers ({_words(row.demand)}); {free:g} GPUs are free, "
        f"which hold {fits}",
        blockers=tuple(blockers[:5]), start=wait,
        change=f"ask for {fits} workers: they would start now" if fits else "",
    )  # fmt: skip


def _largest_that_fits(view: ClusterView, place: int) -> int:
    row = view.jobs.rows[place]
    return min(row.workers - 1, int(view.nodes.room(row.demand).sum()))


def _words(demand: Demand) -> str:
    gpus = f"{demand.gpus} GPUs" if not demand.shares else f"{demand.gpu_milli / 1000:g} of a GPU"
    return f"{gpus}, {demand.cpu_milli / 1000:g} cores, {demand.memory_mib} MiB each"


def _waiting(
    job: str, code: str, message: str, *, blockers: tuple[str, ...] = (),
    start: float | None = None, change: str = "",
) -> Explanation:  # fmt: skip
    return Explanation(
        job=job, state="waiting", code=code, message=message, blockers=blockers,
        start_in_seconds=start, change=change,
    )  # fmt: skip
