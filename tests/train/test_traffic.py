"""Bytes that ranks really send, counted in the running processes, against the least possible."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.layout import Layout, ParallelPlan, Sharding
from cnai.plan.traffic import least_bytes
from training_case import SHAPE, Case, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]
SHARDED = plan_of(Layout(data=2), sharding=Sharding.FULL)


def sent(gang: LocalGang, folder: Path, plan: ParallelPlan, **case: Any) -> dict[str, float]:
    """Return what a rank sent in its second step, mean of the ranks."""
    ranks = plan.layout.ranks
    Case(folder, plan, steps=3, traffic=True, **case).run(gang)
    found = [json.loads((folder / f"traffic-{rank}.json").read_text()) for rank in range(ranks)]
    return {axis: sum(one.get(axis, 0) for one in found) / ranks for axis in found[0] | found[-1]}


@pytest.mark.parametrize(
    ("plan", "axis", "fewest", "most"),
    [
        (plan_of(Layout(data=2)), "data", 1.0, 1.01),
        (plan_of(Layout(data=4)), "data", 1.0, 1.01),
        # torch keeps the outermost weights between forward and backward
        (SHARDED, "data", 0.9, 1.0),
        (plan_of(Layout(pipeline=2)), "pipeline", 1.0, 1.01),
        (plan_of(Layout(model=2)), "model", 1.0, 2.0),
    ],
    ids=["dp2", "dp4", "dp2 sharded", "pp2", "tp2"],
)
def test_a_rank_sends_little_more_than_it_must(
    gang: LocalGang, tmp_path: Path, plan: ParallelPlan, axis: str, fewest: float, most: float
) -> None:
    found = sent(gang, tmp_path, plan, tied=False)
    shape = replace(SHAPE, tied_head=False)
    least = least_bytes(shape, plan, sequence=SHAPE.sequence)[axis]
    assert fewest * least <= found[axis] <= most * least


def test_the_one_message_of_a_step_is_small(gang: LocalGang, tmp_path: Path) -> None:
    plan = plan_of(Layout(data=2, pipeline=2), microbatches=4)
    assert 0 < sent(gang, tmp_path, plan, balance=0.1)["world"] < 200


def test_the_owners_of_a_tied_embedding_are_counted_apart(gang: LocalGang, tmp_path: Path) -> None:
    found = sent(gang, tmp_path, plan_of(Layout(pipeline=2, data=2)))
    assert found["tie"] == SHAPE.vocab * SHAPE.width * 4
