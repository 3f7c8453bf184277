"""`ai-cli train --dry-run --world N`: build a layout for real, without the machines."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cnai.core.errors import SpecError
from cnai.core.layout import ParallelPlan
from cnai.core.spec import RunSpec
from cnai.flows.shape import shape_of
from cnai.train.rehearsal import RankSize, rehearse


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A layout that was built without memory.

    Attributes:
        ranks: One rank of each place in the pipeline.
        memory_bytes: What the plan expects of each, in the same order.
    """

    plan: ParallelPlan
    ranks: tuple[RankSize, ...]
    memory_bytes: tuple[int, ...]
    seconds: float


def rehearse_run(spec: RunSpec, plan: ParallelPlan) -> Rehearsal:
    """Split and shard every stage of a plan on the meta device.

    Raises:
        SpecError: The model is a module of the user's own.
        PlanError: What is built is not what was planned.
    """
    shape = shape_of(spec)
    if shape is None:
        raise SpecError(
            "a module of your own cannot be rehearsed: its shape is not known",
            where="model.module",
            hint="leave out `--world`",
        )
    start = time.monotonic()
    ranks = rehearse(shape, plan, spec.train)
    memory = tuple(
        sum(stage.memory.total_bytes for stage in plan.stages_of(one.pipeline)) for one in ranks
    )
    return Rehearsal(plan=plan, ranks=ranks, memory_bytes=memory, seconds=time.monotonic() - start)
