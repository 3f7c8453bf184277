"""What other machines would bring: the same plan on faster parts, and a search on more nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cnai.core.errors import CnaiError
from cnai.core.fleet import Fleet
from cnai.core.layout import ParallelPlan
from cnai.plan.cost import estimate_step
from cnai.plan.devices import Device
from cnai.plan.machines import Machines
from cnai.plan.request import PlanRequest, Trial
from cnai.plan.search import search
from cnai.plan.space import Space

FACTOR = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of the machines.

    Attributes:
        what: In words.
        step_seconds: Time of a step then.
        gain: Throughput over the present one; 1 = none.
    """

    what: str
    step_seconds: float
    gain: float


def sensitivity(request: PlanRequest, fleet: Fleet, plan: ParallelPlan) -> tuple[Change, ...]:
    """Return what changes of the machines would bring to a plan, most first.

    Parts get a quarter faster with the layout as it is; another node is searched anew, with all
    sizes open but the tensor group's.
    """
    shape, estimate = request.shape, plan.estimate
    if shape is None or estimate is None:
        return ()
    machines, trial = Machines.of(fleet), trial_of(plan)
    changes = []
    for what, device in _faster(machines.device):
        found = estimate_step(request, shape, trial, replace(machines, device=device))
        changes.append(_change(what, estimate.step_seconds, found.step_seconds))
    more = _with_another_node(request, fleet, plan)
    if more is not None:
        changes.append(_change("another node", estimate.step_seconds, more))
    return tuple(sorted(changes, key=lambda one: -one.gain))


def trial_of(plan: ParallelPlan) -> Trial:
    """Return a plan as what is weighed."""
    return Trial(
        layout=plan.layout,
        cuts=tuple((stage.first_layer, stage.end_layer) for stage in plan.stages),
        microbatches=plan.microbatches,
        rows=plan.microbatch_rows,
        schedule=plan.schedule,
        sharding=plan.sharding,
        shard_group=plan.shard_group,
    )


def _change(what: str, before: float, after: float) -> Change:
    return Change(what=what, step_seconds=after, gain=before / after)


def _faster(device: Device) -> tuple[tuple[str, Device], ...]:
    rates = {name: rate * FACTOR for name, rate in device.teraflops.items()}
    percent = f"{FACTOR - 1:.0%}"
    return (
        (f"{percent} faster matrix products", replace(device, teraflops=rates)),
        (
            f"{percent} faster memory",
            replace(device, memory_bytes_per_second=device.memory_bytes_per_second * FACTOR),
        ),
        (
            f"{percent} faster links in a node",
            replace(device, node_bytes_per_second=device.node_bytes_per_second * FACTOR),
        ),
        (
            f"{percent} faster network",
            replace(device, network_bytes_per_second=device.network_bytes_per_second * FACTOR),
        ),
    )


def _with_another_node(request: PlanRequest, fleet: Fleet, plan: ParallelPlan) -> float | None:
    """Return the time of a step with one node more; None = the batch cannot be shared out so."""
    per_node = max(1, fleet.nodes[-1].devices)
    if plan.layout.ranks % per_node or plan.layout.ranks != fleet.devices:
        return None
    larger = Fleet(nodes=(*fleet.nodes, fleet.nodes[-1]))
    free = replace(
        request, data=None, pipeline=None, model=plan.layout.model, microbatches=None,
        ranks=larger.devices, virtual=None,
    )  # fmt: skip
    nothing_else = Space(context=False, expert=False, schedule=False, recompute=False)
    try:
        found = search(free, larger, space=nothing_else).best[0].estimate
    except CnaiError:
        return None
    return found.step_seconds if found else None
