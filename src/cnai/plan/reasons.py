"""Say in sentences why a layout was taken, or what would make one fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from cnai.core.errors import CnaiError, PlanError
from cnai.core.estimate import StepEstimate
from cnai.core.fleet import Fleet
from cnai.core.layout import ParallelPlan, Peak, Sharding
from cnai.core.recompute import Recompute
from cnai.core.units import format_bytes, format_seconds
from cnai.plan.machines import Machines
from cnai.plan.request import PlanRequest


class Weighed(Protocol):
    """What these sentences read of a candidate."""

    @property
    def plan(self) -> ParallelPlan:
        """The plan."""
        ...

    @property
    def estimate(self) -> StepEstimate | None:
        """Expected time."""
        ...

    @property
    def needed_bytes(self) -> int:
        """What the fullest rank needs."""
        ...

    @property
    def usable_bytes(self) -> int:
        """What a rank has."""
        ...

    @property
    def rejected(self) -> str | None:
        """Why it was not taken."""
        ...


Weigh = Callable[[PlanRequest, Fleet], Sequence[Weighed]]


def explain(
    request: PlanRequest, machines: Machines, candidates: Sequence[Weighed]
) -> tuple[str, ...]:
    """Return the reasons for the first candidate."""
    fitting = [candidate for candidate in candidates if candidate.rejected is None]
    rejected = [candidate for candidate in candidates if candidate.rejected is not None]
    return (
        *_choice(request, fitting),
        *_memory(fitting[0], rejected),
        *_warnings(request, machines, fitting[0].plan),
        *_doubt(machines, fitting[0]),
    )


def _doubt(machines: Machines, best: Weighed) -> Iterator[str]:
    """Say how far the time may be off."""
    if best.estimate is None:
        return
    device = machines.device
    if device.error_percent is None:
        yield f"the time is a guess: no published step on {device.name} was at hand to check it"
        return
    yield (
        f"on published steps of other programs on {device.name} the time was off by "
        f"{device.error_percent:g} % on average"
    )


def _choice(request: PlanRequest, fitting: Sequence[Weighed]) -> Iterator[str]:
    best = fitting[0]
    if best.estimate is None and request.module is None:
        yield "the size of a model from `model.module` is not known, so memory is not checked"
        return
    if best.estimate is None:
        yield (
            "of a module of your own weights, gradients and optimizer are counted; what its "
            "activations take and how long a step lasts is not known"
        )
        return
    took = format_seconds(best.estimate.step_seconds)
    if request.is_fixed:
        yield f"{best.plan.layout} as asked: about {took} a step"
        return
    if len(fitting) == 1:
        yield f"{best.plan.layout} is the only layout that fits: about {took} a step"
        return
    yield f"{best.plan.layout} is the fastest of {len(fitting)} that fit: about {took} a step"
    second = fitting[1]
    if second.estimate is not None:
        more = second.estimate.step_seconds / best.estimate.step_seconds - 1
        yield f"next is {second.plan.layout}, {more:.0%} slower"


def _stages(peak: Peak) -> str:
    """Name the stages of the fullest ranks."""
    numbers = " and ".join(str(stage) for stage in peak.stages)
    return f"stage{'s' if len(peak.stages) > 1 else ''} {numbers}"


def _memory(best: Weighed, rejected: Sequence[Weighed]) -> Iterator[str]:
    peak = best.plan.peak
    if best.estimate is None and not peak.memory.weight_bytes:
        return
    yield (
        f"fullest is {_stages(peak)} with {format_bytes(best.needed_bytes)} a rank of "
        f"{format_bytes(best.usable_bytes)} usable"
    )
    if best.plan.sharding is Sharding.FULL:
        yield "parameters are sharded over the data axis"
    if best.plan.sharding is Sharding.HYBRID:
        yield (
            f"parameters are sharded in {best.plan.layout.copies // best.plan.shards} groups of "
            f"{best.plan.shards} copies"
        )
    if rejected:
        nearest = rejected[0]
        yield (
            f"{len(rejected)} rejected for memory; the smallest, {nearest.plan.layout}, "
            f"{nearest.rejected}"
        )


def _warnings(request: PlanRequest, machines: Machines, plan: ParallelPlan) -> Iterator[str]:
    layout = plan.layout
    if plan.estimate and layout.pipeline > 1:
        yield (
            f"the pipeline idles {plan.estimate.bubble_fraction:.0%} of the time: "
            f"{plan.microbatches} microbatches over {len(plan.stages)} stages"
        )
    if layout.model > machines.per_node:
        yield (
            f"warning: a tensor group of {layout.model} leaves the node of {machines.per_node} "
            "devices and talks over the network in every layer"
        )
    if layout.context * layout.model > machines.per_node and layout.context > 1:
        yield (
            f"warning: a context group of {layout.context} leaves the node of {machines.per_node} "
            "devices and exchanges over the network in every layer"
        )
    if layout.expert * layout.model > machines.per_node and layout.expert > 1:
        yield (
            f"warning: experts are spread over {layout.expert} ranks beyond the node of "
            f"{machines.per_node} devices, and tokens travel over the network in every sparse layer"
        )
    if request.shape and layout.model > 1 and not layout.is_split(request.shape.layers - 1):
        yield "warning: no layer is split, so the model axis repeats the same work"
    if layout.ranks > machines.fleet.devices:
        yield f"warning: {layout.ranks} ranks share {machines.fleet.devices} CPU places"


def no_fit(
    request: PlanRequest, fleet: Fleet, candidates: Sequence[Weighed], weigh: Weigh
) -> PlanError:
    """Return the error for a request that nothing fits, with the nearest layout that would."""
    smallest = candidates[0]
    plan, memory = smallest.plan, smallest.plan.peak.memory
    kind = Machines.of(fleet).device.name
    what = str(plan.layout)
    if not request.is_fixed:
        what = f"the smallest of {len(candidates)} layouts, {what},"
    return PlanError(
        f"no plan fits: {what} needs {format_bytes(smallest.needed_bytes)} on each rank of "
        f"{_stages(plan.peak)} (weights {format_bytes(memory.weight_bytes)}, "
        f"gradients {format_bytes(memory.gradient_bytes)}, "
        f"optimizer {format_bytes(memory.optimizer_bytes)}, "
        f"activations {format_bytes(memory.activation_bytes)}), and a rank on {kind} has "
        f"{format_bytes(smallest.usable_bytes)} usable",
        where="parallel",
        hint=_nearest_fit(request, fleet, weigh),
    )


def _nearest_fit(request: PlanRequest, fleet: Fleet, weigh: Weigh) -> str:
    for advice, other, machines in _steps(request, fleet):
        try:
            best = weigh(other, machines)[0]
        except CnaiError:
            continue
        if best.rejected is None:
            return f"{advice}{_settings(best.plan)} fits with {format_bytes(best.needed_bytes)}"
    return "use devices with more memory, a shorter `model.sequence` or a smaller model"


def _steps(request: PlanRequest, fleet: Fleet) -> Iterator[tuple[str, PlanRequest, Fleet]]:
    """Yield what could be changed, least first."""
    auto = replace(request, sharding="auto", microbatches=None)
    if request.sharding == "none":
        yield "", replace(request, sharding="full"), fleet
    yield "", auto, fleet
    for mode in _more(request):
        yield f"with `train.recompute: {mode}`, ", replace(auto, recompute=mode), fleet
    ranks = request.asked.ranks if request.is_fixed else request.ranks
    free = replace(auto, data=None, model=None, pipeline=None, ranks=ranks)
    yield from _with_recomputing("", free, fleet)
    if request.split_layer:
        yield "with `split_layer: 0`, ", replace(free, split_layer=0), fleet
    if (ranks or 0) < fleet.devices:
        more_ranks = replace(free, ranks=fleet.devices)
        yield from _with_recomputing(f"`resources.ranks: {fleet.devices}`", more_ranks, fleet)
    for factor in (2, 4, 8, 16, 32, 64):
        more = Fleet(nodes=fleet.nodes * factor)
        what = f"{len(more.nodes)} nodes ({more.devices} devices)"
        yield from _with_recomputing(what, replace(free, ranks=more.devices), more)


def _more(request: PlanRequest) -> list[str]:
    """Return the ways to recompute more than was asked for, least first."""
    modes = [mode.value for mode in Recompute]
    return modes[modes.index(request.recompute) + 1 :]


def _with_recomputing(
    what: str, request: PlanRequest, fleet: Fleet
) -> Iterator[tuple[str, PlanRequest, Fleet]]:
    """Yield a change alone, then together with all activations computed twice."""
    yield f"with {what}, " if what else "", request, fleet
    if request.recompute != Recompute.FULL:
        advice = f"with {what} and" if what else "with"
        full = replace(request, recompute=Recompute.FULL.value)
        yield f"{advice} `train.recompute: full`, ", full, fleet


def _settings(plan: ParallelPlan) -> str:
    layout = plan.layout
    context = f"context_parallel: {{size: {layout.context}}}, " if layout.context > 1 else ""
    if layout.expert > 1:
        context += f"expert_parallel: {{size: {layout.expert}}}, "
    return (
        f"`data_parallel: {{size: {layout.data}, sharding: {plan.sharding.value}}}, "
        f"model_parallel: {{size: {layout.model}, split_layer: {layout.split_layer}}}, "
        f"{context}"
        f"pipeline_parallel: {{stages: {layout.pipeline}, microbatches: {plan.microbatches}}}`"
    )
