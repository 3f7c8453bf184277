"""Holds the closed forms against the operations that torch's schedules list."""

from collections import Counter
from types import SimpleNamespace

import pytest

from cnai.core.layout import Layout, Sharding
from cnai.core.schedules import SCHEDULES
from cnai.plan.pipeline import idle_pieces, in_flight
from cnai.plan.request import Trial

pytestmark = pytest.mark.slow

PASSES = {"FORWARD": 1, "BACKWARD_INPUT": 1, "BACKWARD_WEIGHT": 1, "FULL_BACKWARD": 2}
CASES = [
    (name, ranks, virtual, pieces)
    for name in SCHEDULES
    if name not in {"1F1B", "GPipe"}
    for ranks in (2, 3, 4, 8)
    for virtual in (1, 2, 3)
    for pieces in (2 * ranks, 4 * ranks, 2 * ranks + 2)
    if SCHEDULES[name].takes_virtual(virtual) and SCHEDULES[name].takes(pieces, ranks)
]


def trial(name, ranks, virtual, pieces):
    return Trial(
        layout=Layout(pipeline=ranks), cuts=((0, 1),) * ranks * virtual, microbatches=pieces,
        rows=1, schedule=name, sharding=Sharding.NONE,
    )  # fmt: skip


def operations(name, ranks, virtual, pieces):
    """List the passes of each rank as (stage, kind, piece)."""
    from torch.distributed.pipelining.schedules import get_schedule_class

    stages = [
        SimpleNamespace(num_stages=ranks * virtual, group_size=ranks, group_rank=0, submod=None)
        for _ in range(virtual)
    ]
    order = get_schedule_class(name)(stages, pieces, loss_fn=lambda *_: None).pipeline_order
    return [
        [
            (one.stage_index, one.computation_type.name, one.microbatch_index)
            for action in order[rank]
            if action is not None
            for one in action.sub_actions or (action,)
        ]
        for rank in range(ranks)
    ]


def carried_out(lists, stages):
    """Run the lists; return the time until all are done and the most pieces that each rank held."""
    done, clocks, places = {}, [0] * len(lists), [0] * len(lists)
    held, most = [Counter() for _ in lists], [0] * len(lists)
    while any(place < len(one) for place, one in zip(places, lists, strict=True)):
        before = list(places)
        for rank, passes in enumerate(lists):
            while places[rank] < len(passes):
                stage, kind, piece = passes[places[rank]]
                needed = []
                if kind == "FORWARD" and stage > 0:
                    needed = [("FORWARD", stage - 1, piece)]
                elif kind in {"BACKWARD_INPUT", "FULL_BACKWARD"} and stage < stages - 1:
                    needed = [("BACKWARD", stage + 1, piece)]
                if not all(one in done for one in needed):
                    break
                clocks[rank] = max(clocks[rank], *(done[one] for one in needed), 0) + PASSES[kind]
                label = "BACKWARD" if kind in {"BACKWARD_INPUT", "FULL_BACKWARD"} else kind
                done[label, stage, piece] = clocks[rank]
                held[rank][stage] += (kind == "FORWARD") - (
                    kind in {"BACKWARD_WEIGHT", "FULL_BACKWARD"}
                )
                most[rank] = max(most[rank], held[rank].total())
                places[rank] += 1
        assert places != before, "nothing can go on"
    return max(clocks), most


@pytest.mark.parametrize(("name", "ranks", "virtual", "pieces"), CASES)
def test_idle_time_and_pieces_held_are_those_of_torchs_schedule(name, ranks, virtual, pieces):
    lists = operations(name, ranks, virtual, pieces)
    took, most = carried_out(lists, ranks * virtual)
    one = trial(name, ranks, virtual, pieces)
    assert took / (3 * virtual) - pieces == pytest.approx(idle_pieces(one))
    counted = [sum(in_flight(one, stage) for stage in one.stages_of(rank)) for rank in range(ranks)]
    assert counted == most


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_v_with_few_pieces_idles_no_longer_than_is_said(ranks):
    for pieces in range(ranks, 2 * ranks):
        lists = operations("ZBVZeroBubble", ranks, 2, pieces)
        took, most = carried_out(lists, 2 * ranks)
        one = trial("ZBVZeroBubble", ranks, 2, pieces)
        assert took / 6 - pieces <= idle_pieces(one) + 1e-9
        assert max(most) <= 2 * ranks


def test_owners_are_those_of_torchs_schedule():
    for name, schedule in SCHEDULES.items():
        if name in {"1F1B", "GPipe"}:
            continue
        lists = operations(name, 4, 2, 8)
        for rank, passes in enumerate(lists):
            assert {stage for stage, _, _ in passes} == set(schedule.stages_of(rank, 4, 2))
