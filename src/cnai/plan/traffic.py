"""How many bytes a rank sends in a step at least, by axis: what a layout asks for, nothing more.

Sources of the volumes are those of `plan.cost`. With n ranks a ring passes (n - 1) / n of a payload
on for a gather or a scatter, and twice as much for a sum, which is the least that is possible
(Patarasuk and Yuan 2009, J. Parallel and Distributed Computing 69(2)).
"""

from __future__ import annotations

from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.shape import DecoderShape
from cnai.plan.activations import FLOAT
from cnai.plan.memory import rank_parameters
from cnai.plan.request import Trial

_SUMS = 4  # two in forward, two in backward, a split layer


def least_bytes(shape: DecoderShape, plan: ParallelPlan, *, sequence: int) -> dict[str, float]:
    """Return the bytes that a rank sends in a step, mean of the ranks, in float32.

    - `data`: one sum of the gradients; with full sharding, for every micro-batch, the weights twice
      and the gradients once; with hybrid sharding that in groups, and a sum between them.
    - `model`: four sums of the residual stream a split layer and micro-batch.
    - `pipeline`: each micro-batch once forward and once back over every border between two ranks.

    What embedding, head and loss of a split model send beside this is not counted, nor what the
    context axis exchanges in attention, nor the tokens that go to experts.
    """
    layout = plan.layout
    trial = Trial(
        layout=layout,
        cuts=tuple((stage.first_layer, stage.end_layer) for stage in plan.stages),
        microbatches=plan.microbatches,
        rows=plan.microbatch_rows,
        schedule=plan.schedule,
        sharding=plan.sharding,
        shard_group=plan.shard_group,
    )
    stages = range(len(plan.stages))
    payload = FLOAT * plan.microbatch_rows * sequence * shape.width / layout.context
    weights = FLOAT * sum(rank_parameters(shape, trial, one) for one in stages) / layout.pipeline
    sums = _SUMS * sum(trial.split_layers(one) for one in stages) / layout.pipeline
    borders = sum(plan.owner_of(one) != plan.owner_of(one + 1) for one in stages[:-1])
    return {
        "data": _data_bytes(plan, weights),
        "model": plan.microbatches * sums * 2 * payload * _passed(layout.model),
        "pipeline": plan.microbatches * 2 * borders * payload / layout.pipeline,
    }


def _data_bytes(plan: ParallelPlan, weights: float) -> float:
    if plan.sharding is Sharding.NONE:
        return 2 * weights * _passed(plan.layout.copies)
    inside = 3 * plan.microbatches * weights * _passed(plan.shards)
    between = 2 * weights / plan.shards * _passed(plan.layout.copies // plan.shards)
    return inside + between


def _passed(ranks: int) -> float:
    """Return the share of a payload that a rank of a ring passes on."""
    return (ranks - 1) / ranks
