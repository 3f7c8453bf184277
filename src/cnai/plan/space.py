"""The combinations that a search looks at: sizes, schedules, recomputing, microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import gcd

from cnai.core.errors import PlanError
from cnai.core.fleet import Fleet
from cnai.core.layout import Layout, Sharding
from cnai.core.recompute import Recompute
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.plan.balance import Cuts, balance
from cnai.plan.cost import layer_costs
from cnai.plan.machines import Machines
from cnai.plan.request import PlanRequest, Trial
from cnai.plan.rules import legal_counts, violations
from cnai.plan.violation import RANKS, divisors

_MOST_VIRTUAL = 8
_FEWEST_POSITIONS = 4096
"""Positions a rank below which there is nothing that a context group could save."""


class Objective(StrEnum):
    """What is made as small as it can be."""

    TIME = "time"
    COST = "cost"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Which sizes may differ from the request, beside those that it leaves open."""

    context: bool = True
    expert: bool = True
    schedule: bool = True
    recompute: bool = True
    split_sequence: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """One combination, before it is weighed."""

    request: PlanRequest
    trial: Trial
    machines: Machines

    def exact(self) -> PlanRequest:
        """Return the request that leaves nothing open."""
        trial = self.trial
        return replace(
            self.request,
            microbatches=trial.microbatches,
            sharding=trial.sharding.value,
            shard_group=trial.shard_group if trial.sharding is Sharding.HYBRID else None,
            ranks=trial.layout.ranks,
        )


def ways(
    request: PlanRequest, shape: DecoderShape, fleet: Fleet, space: Space, objective: Objective
) -> Iterator[Way]:
    """Yield the combinations that the rules allow."""
    for machines, ranks in _sizes(request, fleet, objective):
        for layout in _layouts(request, shape, machines, ranks, space):
            for schedule, virtual in _schedules(request, shape, layout, space):
                yield from _with_layout(
                    replace(request, schedule=schedule, virtual=virtual), shape, machines, layout,
                    space,
                )  # fmt: skip


def _sizes(
    request: PlanRequest, fleet: Fleet, objective: Objective
) -> Iterator[tuple[Machines, int]]:
    """Yield machines with the ranks on them."""
    ranks = request.asked.ranks if request.is_fixed else request.ranks
    if ranks is not None or objective is Objective.TIME:
        ranks = ranks or fleet.devices
        if ranks > fleet.devices and Machines.of(fleet).device.name != "cpu":
            raise PlanError(
                f"{ranks} ranks were asked for, but the machines have {fleet.devices} devices",
                where=RANKS,
                hint=f"set `{RANKS}: {fleet.devices}` or less, or more `resources.nodes`",
            )
        yield Machines.of(fleet), ranks
        return
    nodes = len(fleet.nodes)
    while nodes:
        part = Fleet(nodes=fleet.nodes[:nodes])
        yield Machines.of(part), part.devices
        nodes //= 2


def _layouts(
    request: PlanRequest, shape: DecoderShape, machines: Machines, ranks: int, space: Space
) -> Iterator[Layout]:
    """Yield sizes whose product is the ranks; groups that talk most stay in a node."""
    heads = gcd(shape.heads, shape.kv_heads)
    models = [request.model] if request.model else divisors(heads)
    for model in models:
        if ranks % model or (model > machines.per_node and not request.model):
            continue
        for context in _contexts(request, machines, model, space):
            if ranks % (model * context):
                continue
            rest = ranks // model // context
            for pipeline in [request.pipeline] if request.pipeline else divisors(rest):
                if rest % pipeline or pipeline > shape.layers:
                    continue
                data = rest // pipeline
                if request.data in (None, data) and request.batch % data == 0:
                    base = Layout(
                        data=data, model=model, pipeline=pipeline, context=context,
                        split_layer=request.split_layer,
                        split_sequence=model > 1 and (request.split_sequence or (
                            space.split_sequence and request.adapters is None
                            and request.sequence // context % model == 0)),
                    )  # fmt: skip
                    for expert in _experts(request, shape, machines, base, space):
                        yield replace(base, expert=expert)


def _contexts(request: PlanRequest, machines: Machines, model: int, space: Space) -> list[int]:
    if request.context > 1 or not space.context:
        return [request.context]
    most = max(1, machines.per_node // model)
    return [
        size
        for size in divisors(most)
        if size == 1 or request.sequence // size >= _FEWEST_POSITIONS
    ]


def _experts(
    request: PlanRequest, shape: DecoderShape, machines: Machines, layout: Layout, space: Space
) -> list[int]:
    if request.expert > 1 or not shape.experts or not space.expert:
        return [request.expert]
    legal = divisors(gcd(layout.copies, shape.experts))
    return [size for size in legal if size * layout.model <= 8 * machines.per_node]


def _schedules(
    request: PlanRequest, shape: DecoderShape, layout: Layout, space: Space
) -> Iterator[tuple[str, int | None]]:
    yield request.schedule, request.virtual
    if request.schedule != "1F1B" or not space.schedule or layout.pipeline == 1:
        return
    for virtual in range(2, min(_MOST_VIRTUAL, shape.layers // layout.pipeline) + 1):
        if shape.layers % (layout.pipeline * virtual) == 0 or virtual == 2:
            yield "Interleaved1F1B", virtual


def _with_layout(
    request: PlanRequest, shape: DecoderShape, machines: Machines, layout: Layout, space: Space
) -> Iterator[Way]:
    """Yield a layout with every recomputing, sharding and number of microbatches."""
    asked = replace(
        request, data=layout.data, model=layout.model, pipeline=layout.pipeline,
        context=layout.context, expert=layout.expert, split_sequence=layout.split_sequence,
        microbatches=request.microbatches,
    )  # fmt: skip
    if next(violations(asked, layout), None) is not None:
        return
    stages = layout.pipeline * asked.virtual_of(layout)
    cuts = _cuts(shape, asked.sequence, layout.model, layout.split_layer, stages)
    share = request.batch // layout.data
    counts = [request.microbatches] if request.microbatches else legal_counts(asked, layout, share)
    modes: tuple[str, ...] = (request.recompute,)
    if request.recompute == "none" and space.recompute:
        modes = tuple(mode.value for mode in Recompute)
    if schedule_named(asked.schedule).splits_backward and layout.pipeline > 1:
        modes = (request.recompute,)
    for sharding in _shardings(request, layout):
        for mode in modes:
            for count in counts:
                yield Way(
                    request=replace(asked, recompute=mode),
                    trial=Trial(
                        layout=layout, cuts=cuts, microbatches=count, rows=share // count,
                        schedule=asked.schedule, sharding=sharding,
                        shard_group=_group(asked, layout, machines),
                    ),
                    machines=machines,
                )  # fmt: skip


def _shardings(request: PlanRequest, layout: Layout) -> tuple[Sharding, ...]:
    if request.sharding != "auto":
        return (Sharding(request.sharding),)
    return (Sharding.NONE, Sharding.FULL) if layout.copies > 1 else (Sharding.NONE,)


def _group(request: PlanRequest, layout: Layout, machines: Machines) -> int:
    if request.sharding != Sharding.HYBRID:
        return 1
    legal = divisors(layout.copies)[1:-1]
    fitting = [size for size in legal if size * layout.model <= machines.per_node]
    return request.shard_group or (fitting[-1:] or legal)[0]


@lru_cache(maxsize=4096)
def _cuts(shape: DecoderShape, sequence: int, model: int, split_layer: int, stages: int) -> Cuts:
    return balance(layer_costs(shape, sequence, model, split_layer), stages)
