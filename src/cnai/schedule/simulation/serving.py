"""Plays a load against a policy for replicas: a fluid queue, first come, first served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.actions import SetReplicas
from cnai.schedule.decide import Policy, decide
from cnai.schedule.nodes import Nodes
from cnai.schedule.services import TICK_SECONDS, ServiceView
from cnai.schedule.view import ClusterView

STEP_SECONDS = 5.0
_STEPS = int(TICK_SECONDS / STEP_SECONDS)
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Work that arrives, in replicas that it keeps busy, a value for each step of 5 s."""

    work: NDArray[np.float64]
    requests: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ServingOutcome:
    """What a policy made of a load.

    Attributes:
        slo: Share of the requests that waited 2 s at most.
        replica_hours: Replicas that were paid, starting ones too.
        ready: Ready replicas at each tick.
        changes: Orders to start or stop.
    """

    policy: str
    slo: float
    replica_hours: float
    changes: int
    ready: NDArray[np.int64] = field(repr=False)
    load: NDArray[np.float64] = field(repr=False)


def bursty(
    times: Sequence[float], rates: Sequence[float], *, replicas: float, seed: int = 0
) -> Load:
    """Make arrivals of a rate that is given at some moments, with bursts and chance.

    Between moments the rate lies on a straight line. Each 30 s it is multiplied by a gamma variate
    with mean 1 and a coefficient of variation of 0.25, then requests come by Poisson.

    Args:
        times: Moments in seconds, rising.
        rates: Requests a second at each.
        replicas: Replicas that the mean rate keeps busy.
        seed: Of the bursts.
    """
    random = np.random.default_rng(seed)
    span = times[-1] - times[0]
    moments = times[0] + np.arange(0, span, STEP_SECONDS)
    rate = np.interp(moments, times, rates)
    blocks = random.gamma(16.0, 1 / 16.0, size=int(span / 30) + 2)
    burst = blocks[((moments - times[0]) // 30).astype(np.int64)]
    requests = random.poisson(rate * burst * STEP_SECONDS).astype(np.float64)
    per_replica = float(np.mean(rate)) / replicas
    return Load(work=requests / STEP_SECONDS / per_replica, requests=requests)


def serve_load(load: Load, policy: Policy, cold_start_seconds: float) -> ServingOutcome:
    """Play a load; replicas cost from their order on and answer after the cold start."""
    first = max(1, int(np.ceil(2 * load.work[:_STEPS].mean())))
    service = ServiceView(name="service", ready=first, cold_start_seconds=cold_start_seconds)
    view = ClusterView(nodes=Nodes(()), services=[service])
    coming: list[tuple[float, int]] = []
    backlog, late, paid, changes = 0.0, 0.0, 0.0, 0
    ready: list[int] = []
    work, requests = load.work.tolist(), load.requests.tolist()
    for tick in range(len(work) // _STEPS):
        now = tick * TICK_SECONDS
        while coming and coming[0][0] <= now:
            service.ready += coming[0][1]
            service.starting -= coming.pop(0)[1]
        part = slice(tick * _STEPS, (tick + 1) * _STEPS)
        missed, backlog = _play(work[part], requests[part], service.ready, backlog)
        late += missed
        paid += service.replicas * TICK_SECONDS
        ready.append(service.ready)
        service.loads.append(sum(work[part]) / _STEPS)
        service.late.append(missed / max(sum(requests[part]), 1e-9))
        service.backlog_seconds = backlog / max(service.ready, 1)
        for action in decide(view, now + TICK_SECONDS, policy):
            if isinstance(action, SetReplicas):
                changes += 1
                _order(service, coming, action.replicas, now + TICK_SECONDS)
    whole = float(load.requests[: len(ready) * _STEPS].sum())
    return ServingOutcome(
        policy=policy.name,
        slo=1 - late / max(whole, 1e-9),
        replica_hours=paid / 3600,
        changes=changes,
        ready=np.array(ready),
        load=load.work,
    )


def _play(
    work: Sequence[float], requests: Sequence[float], ready: int, backlog: float
) -> tuple[float, float]:
    """Return the requests that waited too long, and the work that is left, over some steps."""
    late = 0.0
    limit = ready * PATIENCE_SECONDS
    for arriving, count in zip(work, requests, strict=True):
        after = max(0.0, backlog + (arriving - ready) * STEP_SECONDS)
        low, high = min(backlog, after), max(backlog, after)
        if high > limit:
            late += count * (1.0 if low >= limit else (high - limit) / (high - low))
        backlog = after
    return late, backlog


def _order(
    service: ServiceView, coming: list[tuple[float, int]], replicas: int, now: float
) -> None:
    """Start or stop replicas; those that are still starting are stopped first, newest first."""
    more = replicas - service.replicas
    if more > 0:
        service.starting += more
        coming.append((now + service.cold_start_seconds, more))
        return
    fewer = -more
    while fewer and coming:
        moment, count = coming.pop()
        stopped = min(count, fewer)
        fewer -= stopped
        service.starting -= stopped
        if count > stopped:
            coming.append((moment, count - stopped))
    service.ready -= fewer
