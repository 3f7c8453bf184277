"""The layout nearest to one that the machines no longer hold, with the same global batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cnai.core.errors import PlanError, SpecError
from cnai.core.fleet import Fleet
from cnai.core.layout import Layout, ParallelPlan
from cnai.plan.planner import alternatives
from cnai.plan.request import PlanRequest
from cnai.plan.violation import divisors


def nearest_plan(
    request: PlanRequest, fleet: Fleet, wanted: Layout, *, most: int
) -> ParallelPlan | None:
    """Return the plan for at most so many ranks that is most like the wanted one.

    It gives up the data axis first, which only changes how many rows a rank takes; then the
    pipeline, then the split of the layers, at last that of the positions; with each, experts come
    together as far as it takes. The batch stays, and with it the curve.

    Args:
        request: What is asked, with whatever sizes.
        wanted: The layout to stay near.
        most: Ranks that there are.

    Returns:
        The plan, None when no layout of so few ranks is legal and fits the memory.
    """
    for sizes in _retreats(request, wanted):
        for ranks in range(min(most, wanted.ranks), 0, -1):
            trial = replace(sizes, ranks=ranks)
            if ranks % trial.asked.ranks:
                continue
            try:
                best = alternatives(trial, fleet)[0]
            except (SpecError, PlanError):
                continue
            if best.rejected is None:
                return best.plan
    return None


def _retreats(request: PlanRequest, wanted: Layout) -> Iterator[PlanRequest]:
    """Yield requests that fix less and less; each also without a fixed number of micro-batches."""
    for model, pipeline, context in (
        (wanted.model, wanted.pipeline, wanted.context),
        (wanted.model, None, wanted.context),
        (None, None, wanted.context),
        (None, None, 1),
    ):
        for expert in reversed(divisors(wanted.expert)):
            sizes = replace(
                request, data=None, model=model, pipeline=pipeline, context=context, expert=expert
            )
            yield sizes
            if request.microbatches is not None:
                yield replace(sizes, microbatches=None)
