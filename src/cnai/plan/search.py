"""Search every way to lay a model over machines, also those that a request leaves at their default.

Each combination gets a quick lower bound: the pipeline's time with the layers alone. They are
weighed exactly, best bound first, until no bound is below the last of the best that fit, so that
the winner is the same as if all had been weighed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field

from cnai.core.errors import PlanError
from cnai.core.fleet import Fleet
from cnai.plan.bounds import Bounds
from cnai.plan.machines import Machines
from cnai.plan.memory import stage_memory
from cnai.plan.planner import Candidate, alternatives, weigh_trial
from cnai.plan.reasons import no_fit
from cnai.plan.request import PlanRequest
from cnai.plan.rules import check_layout, check_names, check_ranks
from cnai.plan.space import Objective, Space, Way, ways
from cnai.plan.violation import RANKS

BEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to.

    Attributes:
        best: Candidates that fit, best first; not empty.
        requests: For each of them the request that asks for just that.
        considered: Combinations that the rules allow.
        weighed: Those that were weighed exactly.
        lost: Why others are not there, with how many.
    """

    best: tuple[Candidate, ...]
    requests: tuple[PlanRequest, ...]
    considered: int
    weighed: int
    lost: dict[str, int] = field(default_factory=dict)


def search(
    request: PlanRequest,
    fleet: Fleet,
    *,
    space: Space | None = None,
    objective: Objective = Objective.TIME,
) -> Found:
    """Return the best ways to lay a model over machines.

    With the number of ranks left open, time takes all devices; cost and energy also weigh halves,
    quarters and so on of the nodes.

    Raises:
        SpecError: The request breaks a rule or contradicts itself.
        PlanError: Nothing is legal, or nothing fits; the hint names the nearest that does.
    """
    check_names(request)
    check_layout(request, request.asked)
    check_ranks(request)
    shape = request.shape
    if shape is None:
        raise PlanError(
            "only a decoder's shape can be searched, and this is a module",
            where="model.module",
            hint="give all sizes of `parallel`, or leave out the search",
        )
    heap: list[tuple[float, int, Way]] = []
    bounds = Bounds(shape)
    for way in ways(request, shape, fleet, space or Space(), objective):
        bound = bounds.seconds(way) * price(way.machines, way.trial.layout.ranks, objective)
        heap.append((bound, len(heap), way))
    if not heap:
        raise _nothing_legal(request, fleet)
    heapq.heapify(heap)
    return _weigh(request, fleet, heap, objective)


def _weigh(
    request: PlanRequest,
    fleet: Fleet,
    heap: list[tuple[float, int, Way]],
    objective: Objective,
) -> Found:
    """Weigh by rising bound until the best are certain."""
    considered = len(heap)
    best: list[tuple[float, int, Candidate, PlanRequest]] = []
    over: list[tuple[int, int, Way]] = []
    lost: Counter[str] = Counter()
    weighed = 0
    while heap:
        bound, index, way = heapq.heappop(heap)
        if len(best) >= BEST and bound >= best[-1][0]:
            lost["slower by their layers alone"] += len(heap) + 1
            break
        if not _may_fit(way):
            lost["too much memory"] += 1
            over.append((_first_bytes(way) * way.trial.virtual, index, way))
            continue
        found = weigh_trial(way.request, way.machines, way.trial)
        weighed += 1
        if found.rejected is not None or found.estimate is None:
            lost["too much memory"] += 1
            over.append((found.needed_bytes, index, way))
            continue
        value = found.estimate.step_seconds
        value *= price(way.machines, way.trial.layout.ranks, objective)
        best.append((value, index, found, way.exact()))
        best.sort(key=lambda one: one[:2])
        if len(best) > BEST:
            best.pop()
            lost["slower"] += 1
    if not best:
        near = [one[2] for one in heapq.nsmallest(BEST, over, key=lambda one: one[:2])]
        found_over = [weigh_trial(way.request, way.machines, way.trial) for way in near]
        found_over.sort(key=lambda one: one.needed_bytes)
        raise no_fit(request, fleet, found_over, alternatives)
    return Found(
        best=tuple(one[2] for one in best),
        requests=tuple(one[3] for one in best),
        considered=considered,
        weighed=weighed,
        lost=dict(lost),
    )


def _first_bytes(way: Way) -> int:
    """Return what the first stage alone needs; it is nearly always the fullest."""
    return stage_memory(way.request, way.trial, 0, way.machines.device).total_bytes


def _may_fit(way: Way) -> bool:
    return _first_bytes(way) <= way.machines.usable_bytes(way.trial.layout.ranks)


def price(machines: Machines, ranks: int, objective: Objective) -> float:
    """Return what a second of so many ranks costs: 1, dollars or joules."""
    if objective is Objective.TIME:
        return 1.0
    device = machines.device
    if objective is Objective.COST:
        return ranks * device.price_per_hour / 3600
    return ranks * device.watts


def _nothing_legal(request: PlanRequest, fleet: Fleet) -> PlanError:
    ranks = request.ranks or fleet.devices
    return PlanError(
        f"{ranks} ranks cannot be laid out: no sizes divide the batch of {request.batch}, the "
        "heads and the layers",
        where=RANKS,
        hint=f"set `train.batch` to a multiple of {ranks}, or fewer ranks",
    )
