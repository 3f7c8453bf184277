"""Choose a layout, or check the one that was asked for, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import lcm

from cnai.core.errors import PlanError
from cnai.core.estimate import StepEstimate
from cnai.core.fleet import Fleet
from cnai.core.layout import Layout, Memory, ParallelPlan, Sharding, Stage
from cnai.core.units import format_bytes
from cnai.plan.balance import Cuts, balance
from cnai.plan.cost import estimate_step, layer_costs
from cnai.plan.machines import Machines
from cnai.plan.memory import stage_memory, stage_parameters
from cnai.plan.module_memory import module_cuts, module_memory, module_stage
from cnai.plan.pipeline import in_flight
from cnai.plan.reasons import explain, no_fit
from cnai.plan.request import PlanRequest, Trial
from cnai.plan.rules import (
    check_layout,
    check_names,
    check_ranks,
    legal_counts,
    shard_group,
    violations,
)
from cnai.plan.violation import RANKS, divisors


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A legal layout with what it would cost.

    Attributes:
        plan: The plan, without reasons.
        usable_bytes: What a rank may fill.
        rejected: Why it was not taken although it is legal; None = it fits.
    """

    plan: ParallelPlan
    usable_bytes: int
    rejected: str | None = None

    @property
    def estimate(self) -> StepEstimate | None:
        """Expected time of a step; None when the model's size is unknown."""
        return self.plan.estimate

    @property
    def needed_bytes(self) -> int:
        """What a rank of the fullest stage needs."""
        return self.plan.peak.memory.total_bytes


def make_plan(request: PlanRequest, fleet: Fleet) -> ParallelPlan:
    """Return the plan to build.

    With all sizes given it is that layout, checked; otherwise the layout with the shortest
    expected step among those that fit the memory.

    Raises:
        SpecError: The request breaks a rule or contradicts itself.
        PlanError: No layout fits; says what is needed, what there is, and the nearest that fits.
    """
    candidates = alternatives(request, fleet)
    best = candidates[0]
    if best.rejected is not None:
        raise no_fit(request, fleet, candidates, alternatives)
    return replace(best.plan, reasons=explain(request, Machines.of(fleet), candidates))


def alternatives(request: PlanRequest, fleet: Fleet) -> tuple[Candidate, ...]:
    """Return every legal layout: those that fit, fastest first, then those that do not.

    Each comes with its best number of microbatches and sharding. Not empty.

    Raises:
        SpecError: The request breaks a rule or contradicts itself.
        PlanError: The sizes that are left open cannot be chosen so that every rule holds, or the
            fleet has fewer devices than ranks were asked for.
    """
    check_names(request)
    check_layout(request, request.asked)
    check_ranks(request)
    machines = Machines.of(fleet)
    ranks = request.asked.ranks if request.is_fixed else request.ranks
    if ranks is not None:
        _check_devices(ranks, machines)
        found = _weigh(request, machines, ranks)
        if not found:
            raise _no_layout(request, fleet, ranks)
        return found
    _check_devices(request.asked.ranks, machines)
    return _weigh_up_to(request, machines, max(fleet.devices, request.asked.ranks))


def _weigh_up_to(request: PlanRequest, machines: Machines, most: int) -> tuple[Candidate, ...]:
    """Weigh the largest number of ranks that has a layout that fits, else the largest legal."""
    largest: tuple[Candidate, ...] = ()
    for ranks in range(most, 0, -1):
        if ranks % request.asked.ranks:
            continue
        found = _weigh(request, machines, ranks)
        if found and found[0].rejected is None:
            return found
        largest = largest or found
    if not largest:
        raise _no_layout(request, machines.fleet, most)
    return largest


def _weigh(request: PlanRequest, machines: Machines, ranks: int) -> tuple[Candidate, ...]:
    layouts = _layouts(request, machines, ranks)
    return tuple(sorted((_best(request, machines, layout) for layout in layouts), key=_order))


def _order(candidate: Candidate) -> tuple[bool, float, int, int]:
    plan = candidate.plan
    weight = plan.estimate.step_seconds if plan.estimate else 0.0
    if candidate.rejected is not None:
        weight = float(candidate.needed_bytes)
    return candidate.rejected is not None, weight, plan.layout.pipeline, plan.layout.model


def _layouts(request: PlanRequest, machines: Machines, ranks: int) -> Iterator[Layout]:
    """Yield the legal layouts of so many ranks that agree with the sizes that were given.

    A tensor-parallel group that was not asked for never leaves a node: it talks in every layer.
    """
    if ranks % request.context:
        return
    for model in divisors(ranks // request.context):
        if model != (request.model or model) or (not request.model and model > machines.per_node):
            continue
        for pipeline in divisors(ranks // request.context // model):
            data = ranks // request.context // model // pipeline
            if pipeline != (request.pipeline or pipeline) or data != (request.data or data):
                continue
            layout = replace(request.asked, data=data, model=model, pipeline=pipeline)
            if layout.copies % layout.expert:
                continue
            if next(violations(request, layout), None) is None:
                yield layout


def _best(request: PlanRequest, machines: Machines, layout: Layout) -> Candidate:
    """Return the layout with its best microbatches; sharded only if nothing fits without."""
    cuts = _cut(request, layout)
    candidate = None
    for sharding in _shardings(request, layout):
        share = request.batch // layout.data
        counts = [request.microbatches or 0]
        if request.microbatches is None:
            counts = legal_counts(request, layout, share)
        trials = (
            Trial(
                layout=layout,
                cuts=cuts,
                microbatches=count,
                rows=share // count,
                schedule=request.schedule,
                sharding=sharding,
                shard_group=shard_group(request, layout, machines.per_node),
            )
            for count in counts
        )
        found = min((weigh_trial(request, machines, trial) for trial in trials), key=_order)
        if candidate is None or _order(found) < _order(candidate):
            candidate = found
        if candidate.rejected is None:
            break
    if candidate is None:
        raise RuntimeError("a layout without a sharding was weighed")
    return candidate


def _shardings(request: PlanRequest, layout: Layout) -> tuple[Sharding, ...]:
    if request.sharding != "auto":
        return (Sharding(request.sharding),)
    return (Sharding.NONE, Sharding.FULL) if layout.copies > 1 else (Sharding.NONE,)


def _cut(request: PlanRequest, layout: Layout) -> Cuts:
    """Return the stages' layers, balanced."""
    stages = layout.pipeline * request.virtual_of(layout)
    if request.shape is None:
        return module_cuts(request.module, stages) if request.module else ((0, 0),)
    costs = layer_costs(request.shape, request.sequence, layout.model, layout.split_layer)
    return balance(costs, stages)


def weigh_trial(request: PlanRequest, machines: Machines, trial: Trial) -> Candidate:
    """Return one way to build the model with its memory and time."""
    shape = request.shape
    plan = ParallelPlan(
        layout=trial.layout,
        stages=_stages(request, machines, trial),
        microbatches=trial.microbatches,
        microbatch_rows=trial.rows,
        schedule=trial.schedule,
        sharding=trial.sharding,
        shard_group=trial.shard_group,
        estimate=estimate_step(request, shape, trial, machines) if shape else None,
    )
    usable = machines.usable_bytes(trial.layout.ranks)
    needed = plan.peak.memory.total_bytes
    rejected = None
    if needed > usable:
        rejected = f"needs {format_bytes(needed)} a rank, has {format_bytes(usable)}"
    return Candidate(plan=plan, usable_bytes=usable, rejected=rejected)


def _stages(request: PlanRequest, machines: Machines, trial: Trial) -> tuple[Stage, ...]:
    """Return the stages of a trial with their memory, each kind of stage weighed once."""
    known: dict[object, tuple[int, Memory]] = {}
    stages = []
    for index, (first, end) in enumerate(trial.cuts):
        kind: object = index
        if request.shape is not None:
            kind = (*trial.kind(request.shape, index), in_flight(trial, index))
        if kind not in known:
            memory = (
                module_memory(request, request.module, trial, index, machines.device)
                if request.module
                else stage_memory(request, trial, index, machines.device)
            )
            known[kind] = _parameters(request, trial, index), memory
        parameters, memory = known[kind]
        stages.append(
            Stage(
                index=index, first_layer=first, end_layer=end, parameters=parameters, memory=memory
            )
        )
    return tuple(stages)


def with_cuts(
    request: PlanRequest, fleet: Fleet, plan: ParallelPlan, cuts: Cuts
) -> ParallelPlan | None:
    """Return a plan with its layers cut into stages at other places; None = it does not fit.

    Args:
        request: What was asked when the plan was made.
        plan: Gives everything but the cuts.
        cuts: First and end layer of each stage.
    """
    layout, shape = plan.layout, request.shape
    if shape is None:
        return None
    trial = Trial(
        layout=layout,
        cuts=cuts,
        microbatches=plan.microbatches,
        rows=plan.microbatch_rows,
        schedule=plan.schedule,
        sharding=plan.sharding,
        shard_group=plan.shard_group,
    )
    found = weigh_trial(request, Machines.of(fleet), trial)
    return replace(found.plan, reasons=plan.reasons) if found.rejected is None else None


def _parameters(request: PlanRequest, trial: Trial, stage: int) -> int:
    if request.module is not None:
        return module_stage(request.module, trial, stage).held(1)
    return stage_parameters(request.shape, trial, stage) if request.shape else 0


def _check_devices(ranks: int, machines: Machines) -> None:
    """Refuse more ranks than GPUs; a CPU machine may be shared by any number of ranks."""
    devices = machines.fleet.devices
    if ranks > devices and machines.device.name != "cpu":
        nodes = -(-ranks // machines.per_node)
        raise PlanError(
            f"{ranks} ranks were asked for, but the machines have {devices} devices",
            where=RANKS,
            hint=f"set `resources.nodes: {nodes}` (of {machines.per_node} devices), or sizes "
            f"whose product is {devices} or less",
        )


def _no_layout(request: PlanRequest, fleet: Fleet, ranks: int) -> PlanError:
    """Say that the open sizes cannot be chosen, and which numbers of ranks would do."""
    machines = Machines.of(fleet)
    least = lcm(request.context, request.expert) * (request.model or 1) * (request.pipeline or 1)
    tried = {*range(1, 2 * ranks + 1), least, 2 * least}
    near = sorted(tried, key=lambda other: abs(other - ranks))
    legal = [other for other in near if next(_layouts(request, machines, other), None)]
    works = " or ".join(str(other) for other in sorted(legal[:2]))
    return PlanError(
        f"{ranks} ranks cannot be laid out: no data x model x pipeline sizes divide the batch of "
        f"{request.batch}, the heads and the layers"
        + (f", and can hold experts spread over {request.expert}" if request.expert > 1 else ""),
        where=RANKS,
        hint=f"set `{RANKS}: {works}`" if works else "set `train.batch` to a multiple of the ranks",
    )
