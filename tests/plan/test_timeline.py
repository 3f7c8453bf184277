from itertools import pairwise

import pytest

from cnai.plan import make_plan
from cnai.plan.timeline import picture, timeline
from plan_cases import fleet, small

SCHEDULES = ["1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "ZBVZeroBubble"]


def plan(schedule="1F1B", stages=4, microbatches=8):
    request = small(data=1, model=1, pipeline=stages, microbatches=microbatches, schedule=schedule)
    return make_plan(request, fleet())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_microbatch_passes_every_stage_once_each_way(schedule):
    passes = timeline(plan(schedule))
    keys = {(one.stage, one.microbatch, one.is_backward) for one in passes}
    assert len(keys) == len(passes) == 2 * len(plan(schedule).stages) * 8


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rank_does_one_thing_at_a_time(schedule):
    passes = timeline(plan(schedule))
    for place in range(4):
        mine = [one for one in passes if one.place == place]
        assert all(a.end <= b.start for a, b in pairwise(mine))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_starts_before_what_it_needs(schedule):
    ends = {
        (one.stage, one.microbatch, one.is_backward): one.end for one in timeline(plan(schedule))
    }
    last = len(plan(schedule).stages) - 1
    for one in timeline(plan(schedule)):
        if one.is_backward:
            need = ends[one.stage, one.microbatch, False]
            if one.stage < last:
                need = max(need, ends[one.stage + 1, one.microbatch, True])
        else:
            need = ends.get((one.stage - 1, one.microbatch, False), 0.0)
        assert one.start >= need


def test_1f1b_takes_as_long_as_the_textbook_says():
    assert max(one.end for one in timeline(plan())) == pytest.approx(3 * (8 + 3))


def test_a_picture_has_a_line_for_each_place_and_idle_time():
    lines = picture(plan(), width=60)
    assert [len(line) for line in lines] == [60] * 4
    assert all("." in line for line in lines)


def test_without_a_pipeline_nobody_idles():
    assert "." not in picture(plan(stages=1), width=48)[0]
