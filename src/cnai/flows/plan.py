"""`ai-cli plan`: from a spec to the layout that would be built."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from cnai.core.errors import DataError, SpecError
from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.llama_config import CONFIG_FILE, read_config
from cnai.core.llama_config import FAMILIES as TRAINED
from cnai.core.module import ModuleFacts
from cnai.core.shape import DecoderShape
from cnai.core.spec import RunSpec
from cnai.flows.machines import asked_ranks, fleet_of
from cnai.flows.shape import shape_of
from cnai.plan import Candidate, PlanRequest, alternatives, device_named, make_plan
from cnai.plan.reading import described
from cnai.plan.search import Found, search
from cnai.plan.sensitivity import Change, sensitivity
from cnai.plan.space import Objective


def plan_run(spec: RunSpec, *, on_paper: bool = False) -> ParallelPlan:
    """Check the layout that the spec asks for, or choose one.

    Args:
        on_paper: Whether a model that can be planned but not trained is good enough.

    Raises:
        SpecError: The spec contradicts itself.
        PlanError: Nothing fits the machines; the hint names the nearest that does.
    """
    return make_plan(request_of(spec, on_paper=on_paper), fleet_of(spec))


def weigh_run(spec: RunSpec, *, on_paper: bool = False) -> tuple[Candidate, ...]:
    """Return every legal layout, best first."""
    return alternatives(request_of(spec, on_paper=on_paper), fleet_of(spec))


def search_run(spec: RunSpec, objective: str = "time") -> tuple[Found, ParallelPlan]:
    """Search all sizes, schedules and ways of recomputing that the spec leaves at their default.

    Args:
        objective: `time`, `cost` or `energy`.

    Returns:
        What was found, and its best plan with the reasons.

    Raises:
        SpecError: The spec contradicts itself.
        PlanError: Nothing fits the machines; the hint names the nearest that does.
    """
    fleet = fleet_of(spec)
    found = search(request_of(spec, on_paper=True), fleet, objective=Objective(objective))
    plan = make_plan(found.requests[0], fleet)
    lost = ", ".join(f"{count} {why}" for why, count in sorted(found.lost.items()))
    chosen = f"best of {found.considered} combinations by {objective}: {lost or 'none lost'}"
    return found, replace(plan, reasons=(chosen, *plan.reasons))


def planned(
    spec: RunSpec, *, objective: str | None = None, everything: bool = False
) -> tuple[ParallelPlan, PlanRequest, tuple[Candidate, ...]]:
    """Return a plan, the request for just it, and its rivals.

    Args:
        objective: What a search makes small; None = no search, sizes alone are chosen.
        everything: Whether every legal layout is wanted, where nothing is searched.

    Raises:
        SpecError: The spec contradicts itself.
        PlanError: Nothing fits the machines; the hint names the nearest that does.
    """
    if objective is not None:
        found, plan = search_run(spec, objective)
        return plan, found.requests[0], found.best
    plan = plan_run(spec, on_paper=True)
    others = weigh_run(spec, on_paper=True) if everything else ()
    return plan, exact_request(spec, plan), others


def exact_request(spec: RunSpec, plan: ParallelPlan) -> PlanRequest:
    """Return the request that asks for just this plan."""
    layout, hybrid = plan.layout, plan.sharding is Sharding.HYBRID
    return replace(
        request_of(spec, on_paper=True),
        data=layout.data,
        model=layout.model,
        pipeline=layout.pipeline,
        microbatches=plan.microbatches,
        sharding=plan.sharding.value,
        shard_group=plan.shard_group if hybrid else None,
        virtual=plan.virtual if layout.pipeline > 1 else None,
        ranks=layout.ranks,
    )


def what_if(spec: RunSpec, request: PlanRequest, plan: ParallelPlan) -> tuple[Change, ...]:
    """Return what other machines would bring to a plan, most first."""
    return sensitivity(request, fleet_of(spec), plan)


def written(spec: RunSpec, request: PlanRequest) -> RunSpec:
    """Return the spec with the sizes of a request in place of its own."""
    parallel = spec.parallel
    return spec.model_copy(
        update={
            "parallel": parallel.model_copy(
                update={
                    "data_parallel": parallel.data_parallel.model_copy(
                        update={
                            "size": request.data,
                            "sharding": request.sharding,
                            "shard_group": request.shard_group,
                        }
                    ),
                    "model_parallel": parallel.model_parallel.model_copy(
                        update={"size": request.model, "sequence": request.split_sequence}
                    ),
                    "context_parallel": parallel.context_parallel.model_copy(
                        update={"size": request.context}
                    ),
                    "expert_parallel": parallel.expert_parallel.model_copy(
                        update={"size": request.expert}
                    ),
                    "pipeline_parallel": parallel.pipeline_parallel.model_copy(
                        update={
                            "stages": request.pipeline,
                            "schedule": request.schedule,
                            "virtual": request.virtual,
                            "microbatches": request.microbatches,
                        }
                    ),
                }
            ),
            "train": spec.train.model_copy(update={"recompute": request.recompute}),
            "resources": spec.resources.model_copy(update={"ranks": None}),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a whole run costs by a plan.

    Attributes:
        days: From the first step to the last, without stops.
        device_hours: Over all devices.
        dollars: At the price in the device's data file; 0 = it has none.
        kilowatt_hours: At its power; 0 = not known.
    """

    days: float
    device_hours: float
    dollars: float
    kilowatt_hours: float


def bill_of(spec: RunSpec, plan: ParallelPlan) -> Bill | None:
    """Return what the run costs; None = how long a step takes is not known."""
    if plan.estimate is None:
        return None
    seconds = spec.steps * plan.estimate.step_seconds
    hours = seconds / 3600 * plan.layout.ranks
    device = device_named(fleet_of(spec).nodes[0].device_kind)
    return Bill(
        days=seconds / 86400,
        device_hours=hours,
        dollars=hours * device.price_per_hour,
        kilowatt_hours=hours * device.watts / 1000,
    )


def request_of(spec: RunSpec, *, on_paper: bool = False) -> PlanRequest:
    """Say to the planner what the spec says."""
    parallel = spec.parallel
    shape = _shape_on_paper(spec) if on_paper else shape_of(spec)
    return PlanRequest(
        shape=shape,
        batch=spec.train.batch,
        sequence=shape.sequence if shape else spec.model.sequence,
        optimizer=spec.train.optimizer,
        precision=spec.train.precision,
        data=parallel.data_parallel.size,
        model=parallel.model_parallel.size,
        pipeline=parallel.pipeline_parallel.stages,
        split_layer=parallel.model_parallel.split_layer,
        split_sequence=parallel.model_parallel.sequence,
        context=parallel.context_parallel.size,
        expert=parallel.expert_parallel.size,
        sharding=parallel.data_parallel.sharding,
        shard_group=parallel.data_parallel.shard_group,
        schedule=parallel.pipeline_parallel.schedule,
        virtual=parallel.pipeline_parallel.virtual,
        recompute=spec.train.recompute,
        adapters=spec.train.lora.adapters(),
        microbatches=parallel.pipeline_parallel.microbatches,
        ranks=spec.resources.ranks or asked_ranks(spec),
        module=_facts_of(spec),
    )


def _shape_on_paper(spec: RunSpec) -> DecoderShape | None:
    """Return the shape, also of a model that the runtime's decoder cannot be.

    Raises:
        DataError: The model folder is missing, or holds a kind of model that is not planned.
    """
    if spec.model.huggingface is None:
        return shape_of(spec)
    folder = Path(spec.model.huggingface)
    plain = read_config(folder)
    if plain.get("model_type") in TRAINED:
        with suppress(DataError):  # an option that only training minds; a broken one fails below
            return shape_of(spec)
    return described(plain, where=str(folder / CONFIG_FILE), sequence=spec.model.sequence)


def _facts_of(spec: RunSpec) -> ModuleFacts | None:
    """Count a user's module; only then this process needs torch.

    Raises:
        SpecError: The module cannot be built, or its layers cannot be compiled.
    """
    name = spec.model.module
    if name is None:
        return None
    if find_spec("torch") is None:
        raise SpecError(
            f"`{name}` is a torch module, and torch is not installed here",
            where="model.module",
            hint="install it with `pip install 'cnai[torch]'`",
        )
    from cnai.flows.module import facts  # noqa: PLC0415 - loads torch

    found = facts(name)
    if spec.train.compile and not found.layers:
        raise SpecError(
            f"`train.compile` compiles layers, and `{name}` names none",
            where="train.compile",
            hint="name them as `layers` in its sharding table, or compile in the module itself",
        )
    return found
