"""`ai-cli plan`: from a spec to the layout that would be built."""

from __future__ import annotations

from importlib.util import find_spec

from cnai.core.errors import SpecError
from cnai.core.layout import ParallelPlan
from cnai.core.module import ModuleFacts
from cnai.core.spec import RunSpec
from cnai.flows.machines import asked_ranks, fleet_of
from cnai.flows.shape import shape_of
from cnai.plan import Candidate, PlanRequest, alternatives, make_plan


def plan_run(spec: RunSpec) -> ParallelPlan:
    """Check the layout that the spec asks for, or choose one.

    Raises:
        SpecError: The spec contradicts itself.
        PlanError: Nothing fits the machines; the hint names the nearest that does.
    """
    return make_plan(request_of(spec), fleet_of(spec))


def weigh_run(spec: RunSpec) -> tuple[Candidate, ...]:
    """Return every legal layout, best first."""
    return alternatives(request_of(spec), fleet_of(spec))


def request_of(spec: RunSpec) -> PlanRequest:
    """Say to the planner what the spec says."""
    parallel = spec.parallel
    shape = shape_of(spec)
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
