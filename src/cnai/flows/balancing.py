"""What balances a run: from its spec and plan to those who decide about rows and about layers."""

from __future__ import annotations

from collections.abc import Callable

from cnai.core.balance import Balancer
from cnai.core.fleet import Fleet
from cnai.core.layout import ParallelPlan
from cnai.core.spec import RunSpec
from cnai.flows.plan import request_of
from cnai.flows.shape import shape_of
from cnai.plan import (
    Cuts,
    LayerBalancer,
    ShareBalancer,
    ShareRule,
    layer_costs,
    share_rule,
    with_cuts,
)


def rows_of(spec: RunSpec, plan: ParallelPlan) -> Balancer | None:
    """Return who shares the rows out over the data ranks; None = they stay as they are."""
    rule = _rule(spec, plan)
    return ShareBalancer(plan, rule, spec.train.balance.threshold) if rule else None


def layers_of(
    spec: RunSpec, plan: ParallelPlan, fleet: Callable[[], Fleet]
) -> LayerBalancer | None:
    """Return who cuts the pipeline anew; None = its cuts stay as they are."""
    shape, layout = shape_of(spec), plan.layout
    settings = spec.train.balance
    if shape is None or layout.pipeline == 1 or not settings.layers or spec.train.deterministic:
        return None
    return LayerBalancer(
        plan,
        layer_costs(shape, shape.sequence, layout.model, layout.split_layer),
        threshold=settings.threshold,
        rule=_rule(spec, plan),
        fits=lambda cuts: recut(spec, plan, fleet(), cuts) is not None,
    )


def recut(spec: RunSpec, plan: ParallelPlan, fleet: Fleet, cuts: Cuts) -> ParallelPlan | None:
    """Return the plan with other cuts; None = it does not fit the memory."""
    return with_cuts(request_of(spec), fleet, plan, cuts)


def _rule(spec: RunSpec, plan: ParallelPlan) -> ShareRule | None:
    if not spec.train.balance.rows or spec.train.deterministic:
        return None
    shape = shape_of(spec)
    # The loss that keeps experts evenly used is a mean over the rows of a micro-batch; a user's own
    # module may work such means out too.
    whole = spec.train.compile or shape is None or shape.experts > 0
    rule = share_rule(plan, whole_pieces=whole)
    return None if isinstance(rule, str) else rule
