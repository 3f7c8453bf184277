"""Every second of a run is accounted for, once."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    EvaluationDone,
    LayoutChanged,
    RankLost,
    RankReady,
    RunEnded,
    StepDone,
)
from cnai.monitor import GoodputFold, fold, render_training

TIME = st.floats(0, 1e4)
SECONDS = st.floats(-1, 1e3)
STEP = st.integers(1, 12)
ATTEMPT = st.integers(0, 3)


def begin(at, attempt=0, resumed=0):
    return AttemptStarted(
        time_unix=at, attempt=attempt, ranks=2, steps=9, plan_digest="x", layout="dp2",
        resumed_step=resumed,
    )  # fmt: skip


def step(at, number, *, seconds=1.0, wait=0.0, attempt=0, rank=0):
    return StepDone(
        time_unix=at, rank=rank, attempt=attempt, step=number, loss=1.0, grad_norm=1.0,
        update_ratio=None, learning_rate=0.1, tokens=8, step_seconds=seconds,
        data_wait_seconds=wait,
    )  # fmt: skip


def saved(at, number, *, seconds, blocked):
    return CheckpointSaved(
        time_unix=at, step=number, path="x", size_bytes=1, seconds=seconds, blocked_seconds=blocked
    )


def measured(at, number, seconds):
    return EvaluationDone(
        time_unix=at, attempt=0, step=number, loss=1.0, sequences=2, seconds=seconds
    )


def lost(at, attempt=0):
    return RankLost(time_unix=at, rank=1, attempt=attempt, exit_code=-9, step=None, log_tail="")


def moved(at):
    return LayoutChanged(
        time_unix=at, before="dp4", after="dp2", plan_digest="x", step=3, reason="r"
    )


def ended(at, outcome="done"):
    return RunEnded(time_unix=at, outcome=outcome, step=1, seconds=1.0)


def spent(*events):
    """Return the parts that are not zero."""
    state = GoodputFold()
    for event in events:
        state.add(event)
    return {part: seconds for part, seconds in state.goodput().parts.items() if seconds}


EVENTS = st.one_of(
    st.builds(begin, TIME, ATTEMPT, STEP),
    st.builds(step, TIME, STEP, seconds=SECONDS, wait=SECONDS, attempt=ATTEMPT),
    st.builds(saved, TIME, STEP, seconds=SECONDS, blocked=SECONDS),
    st.builds(measured, TIME, STEP, SECONDS),
    st.builds(lost, TIME, ATTEMPT),
    st.builds(moved, TIME),
    st.builds(ended, TIME),
    st.builds(
        RankReady, time_unix=TIME, rank=st.just(0), attempt=ATTEMPT, pid=st.just(1),
        host=st.just("h"), parameters=st.just(1),
    ),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=30))
def test_the_parts_add_up_to_the_elapsed_time_whatever_happens_in_whatever_order(events):
    state = GoodputFold()
    for event in events:
        state.add(event)
    found = state.goodput()
    assert math.isclose(sum(found.parts.values()), found.elapsed_seconds, abs_tol=1e-6)
    assert all(seconds >= -1e-9 for seconds in found.parts.values())


@given(st.lists(EVENTS, min_size=1, max_size=30))
def test_events_in_order_cover_all_from_the_first_to_the_last_that_moves_time(events):
    events.sort(key=lambda event: event.time_unix)
    state = GoodputFold()
    for event in [*events, ended(2e4)]:
        state.add(event)
    assert math.isclose(state.goodput().elapsed_seconds, 2e4 - events[0].time_unix)


def test_a_smooth_run_starts_up_and_then_is_useful():
    found = spent(begin(100), step(105, 1), step(106, 2), step(107, 3), ended(108))
    assert found == {"startup": 4 + 1, "useful": 3}


def test_waiting_for_data_is_not_useful():
    assert spent(begin(0), step(1, 1), step(3, 2, seconds=2, wait=1.5)) == {
        "useful": 1.5, "data_wait": 1.5,
    }  # fmt: skip


def test_steps_done_again_after_a_loss_are_repeated_and_the_rest_is_recovery():
    found = spent(
        begin(0), step(1, 1), step(2, 2), lost(2.5), begin(3, 1, 1),
        step(6, 2, attempt=1), step(7, 3, attempt=1),
    )  # fmt: skip
    assert found == {"useful": 3, "recovery": 3, "repeated": 1}


def test_a_change_of_layout_is_recovery():
    found = spent(begin(0), step(1, 1), moved(2), begin(2, 1, 1), step(5, 2, attempt=1))
    assert found == {"useful": 2, "recovery": 3}


@pytest.mark.parametrize("told", ["early", "late"])
def test_a_background_checkpoint_costs_the_time_for_which_it_blocked(told):
    event = saved(1.9 if told == "early" else 3.9, 1, seconds=0.8, blocked=0.25)
    steps = [begin(0), step(1, 1), step(2.25, 2), step(3.25, 3)]
    steps.insert(2 if told == "early" else 4, event)
    assert spent(*steps) == {"useful": 3, "checkpoint": 0.25}


def test_measuring_and_saving_after_the_same_step_are_told_apart():
    found = spent(
        begin(0), step(1, 1), measured(1.5, 1, 0.5), saved(2.4, 1, seconds=0.8, blocked=0.2),
        step(2.7, 2), step(3.7, 3),
    )  # fmt: skip
    assert found == pytest.approx({"useful": 3, "evaluation": 0.5, "checkpoint": 0.2})


def test_a_checkpoint_that_is_waited_for_costs_all_its_time():
    found = spent(begin(0), step(1, 1), saved(3, 1, seconds=2, blocked=2), ended(3.5))
    assert found == {"useful": 1, "checkpoint": 2, "startup": 0.5}


def test_time_in_which_nobody_worked_on_the_run_is_idle():
    stopped = (begin(0), step(1, 1), ended(2, "stopped"))
    assert spent(*stopped, begin(50, 1, 1), step(53, 2, attempt=1)) == {
        "useful": 2, "startup": 1 + 2, "idle": 48,
    }  # fmt: skip


def test_a_killed_supervisor_leaves_idle_time():
    found = spent(begin(0), step(1, 1), begin(50, 1, 1), step(53, 2, attempt=1))
    assert found == {"useful": 2, "idle": 49, "startup": 2}


def test_ranks_that_report_the_same_step_count_once():
    assert spent(begin(0), step(1, 1), step(1.2, 1, rank=1), step(2, 2)) == {"useful": 2}


def test_progress_and_metrics_show_the_account():
    events = [begin(0), step(1, 1), step(3, 2, seconds=2, wait=1), ended(4)]
    progress = fold(events, run="r", now_unix=9)
    assert progress.goodput.share == 0.5
    assert sum(progress.goodput.parts.values()) == progress.goodput.elapsed_seconds == 4
    text = render_training(progress)[0].decode()
    assert 'cnai_train_spent_seconds{on="data_wait",run="r"} 1.0' in text
    assert 'cnai_train_goodput_ratio{run="r"} 0.5' in text
