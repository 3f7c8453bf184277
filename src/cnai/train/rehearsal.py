"""Build the ranks of any world in one process, without memory and without the other ranks.

The parts are really split and sharded, by the code that a training rank runs, over a process group
that only pretends (torch's fake group) and on the meta device. What torch refuses in a layout shows
here, and the numbers that a rank would hold are counted and not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from cnai.core.errors import PlanError
from cnai.core.layout import ParallelPlan
from cnai.core.shape import DecoderShape
from cnai.core.spec.sections import Train
from cnai.train.build import lay_out
from cnai.train.ranks import Ranks, context_group, expert_mesh, mesh_of
from cnai.train.shards import local_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSize:
    """What the ranks at one place of the pipeline hold.

    Attributes:
        whole_parameters: Of their stages, before any split.
        parameters: On one rank.
    """

    pipeline: int
    stages: tuple[int, ...]
    whole_parameters: int
    parameters: int


def rehearse(shape: DecoderShape, plan: ParallelPlan, settings: Train) -> tuple[RankSize, ...]:
    """Build one rank of each place in the pipeline, and count what it holds.

    Raises:
        PlanError: The stages built are not those of the plan.
    """
    return tuple(
        _size_of(shape, plan, settings, pipeline) for pipeline in range(plan.layout.pipeline)
    )


def _size_of(shape: DecoderShape, plan: ParallelPlan, settings: Train, pipeline: int) -> RankSize:
    layout = plan.layout
    with _pretended(plan, pipeline * layout.copies * layout.model) as ranks:
        parts = lay_out(shape, plan, ranks, settings)
        held = {name: one for part in parts for name, one in part.named_parameters()}
        whole = sum(one.numel() for part in parts for one in part.parameters())
        local = sum(local_of(one).numel() for one in held.values())
    stages = plan.stages_of(pipeline)
    planned = sum(stage.parameters for stage in stages)
    if settings.lora.adapters() is None and whole != planned:
        raise PlanError(
            f"the ranks at place {pipeline} of the pipeline hold stages of {whole} parameters, and "
            f"the plan says {planned}",
            where="parallel",
            hint="this is a mistake of the planner; please report it with the spec",
        )
    return RankSize(
        pipeline=pipeline,
        stages=tuple(stage.index for stage in stages),
        whole_parameters=whole,
        parameters=local,
    )


@contextmanager
def _pretended(plan: ParallelPlan, rank: int) -> Iterator[Ranks]:
    """Be one rank of many that are not there."""
    dist.init_process_group("fake", rank=rank, world_size=plan.layout.ranks, store=FakeStore())
    try:
        mesh, data_axes = mesh_of(plan, "cpu")
        everybody = dist.group.WORLD
        if everybody is None:
            raise RuntimeError("torch made no group")
        yield Ranks(
            layout=plan.layout,
            place=plan.layout.place(rank),
            mesh=mesh,
            device=torch.device("meta"),
            data_axes=data_axes,
            tie=None,
            writers=everybody,
            context=context_group(plan.layout),
            experts=expert_mesh(plan.layout, "cpu"),
        )
    finally:
        dist.destroy_process_group()
