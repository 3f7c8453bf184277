import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import SpecError
from cnai.core.schedules import SCHEDULES, schedule_named

NAMES = st.sampled_from(sorted(SCHEDULES))


@given(NAMES, st.integers(1, 8), st.integers(1, 4))
def test_every_stage_has_one_owner_and_every_rank_its_share(name, pipeline, virtual):
    schedule = schedule_named(name)
    if not schedule.takes_virtual(virtual):
        return
    owned = [schedule.stages_of(rank, pipeline, virtual) for rank in range(pipeline)]
    assert sorted(stage for stages in owned for stage in stages) == list(range(pipeline * virtual))
    assert {len(stages) for stages in owned} == {virtual}
    assert all(schedule.owner(s, pipeline) == r for r, stages in enumerate(owned) for s in stages)


def test_a_loop_begins_anew_and_a_v_turns_back():
    assert schedule_named("Interleaved1F1B").stages_of(1, 4, 2) == (1, 5)
    assert schedule_named("ZBVZeroBubble").stages_of(1, 4, 2) == (1, 6)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("1F1B", (1,), (2,)),
        ("Interleaved1F1B", (1, 2, 3), (0,)),
        ("ZBVZeroBubble", (2,), (1, 3)),
    ],
)
def test_a_schedule_takes_the_stages_that_it_can_order(name, right, wrong):
    schedule = schedule_named(name)
    assert all(schedule.takes_virtual(virtual) for virtual in right)
    assert not any(schedule.takes_virtual(virtual) for virtual in wrong)


def test_microbatches_are_taken_in_equal_rounds():
    interleaved = schedule_named("Interleaved1F1B")
    assert [m for m in range(1, 13) if interleaved.takes(m, 4)] == [4, 5, 6, 7, 8, 10, 12]


def test_dualpipe_wants_twice_the_ranks():
    assert [m for m in range(1, 7) if schedule_named("DualPipeV").takes(m, 2)] == [4, 5, 6]


def test_an_unknown_schedule_gets_the_list():
    with pytest.raises(SpecError, match="ZB") as caught:
        schedule_named("ZB")
    assert "DualPipeV" in caught.value.hint
