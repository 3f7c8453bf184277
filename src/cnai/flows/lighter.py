"""The planner's next layout when memory ran out: the first that needs clearly less of it."""

from __future__ import annotations

from cnai.core.errors import CnaiError
from cnai.core.layout import ParallelPlan
from cnai.core.spec import RunSpec
from cnai.flows.plan import plan_run
from cnai.flows.scale import with_sizes

Patch = dict[str, str | int | float | bool]

_CLEARLY_LESS = 0.9
_SHARDED: Patch = {"parallel.data_parallel.sharding": "full"}
_STEPS: tuple[Patch, ...] = (
    {"train.recompute": "selective"},
    {"train.recompute": "full"},
    _SHARDED,
    {"train.recompute": "full", **_SHARDED},
)
"""The cheapest first. None of them changes what is trained, so that the curve goes on."""


def lighter(spec: RunSpec, plan: ParallelPlan) -> Patch | None:
    """Return the changes of the spec after which the fullest rank holds clearly less.

    None when no step of the list helps, or none is possible.
    """
    limit = plan.peak.memory.total_bytes * _CLEARLY_LESS
    for patch in _STEPS:
        try:
            after = plan_run(with_sizes(spec, {**patch}))
        except CnaiError:  # this step is not possible here; the next may be
            continue
        if after.peak.memory.total_bytes < limit:
            return patch
    return None
