import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.events import Finding, RankFailed, RankReady, Rebalanced
from cnai.core.records import decode, encode
from cnai.monitor import RunProgress, RunState, fold
from monitor_case import ended, evaluated, lost, saved, started, step


def after(*events, now=200.0):
    return fold(events, run="demo", now_unix=now)


def test_before_the_first_event_nothing_is_known():
    progress = after()
    assert progress.state is RunState.STARTING
    assert (progress.step, progress.loss, progress.eta_seconds) == (0, None, None)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([started()], "starting"),
        ([started(), step(1)], "training"),
        ([started(), step(1), lost()], "recovering"),
        ([started(), step(1), lost(), started(1)], "recovering"),
        ([started(), step(1), lost(), started(1), step(1, attempt=1)], "training"),
        ([started(), step(1), ended("done")], "done"),
        ([started(), step(1), ended("failed")], "failed"),
        ([started(), step(1), ended("stopped")], "stopped"),
        ([started(), step(1), ended("stopped"), started(1, resumed=1)], "starting"),
        ([started(), step(1), ended("what?")], "failed"),
    ],
)
def test_the_state_follows_the_events(events, state):
    assert after(*events).state == state


def test_a_step_counts_once_however_many_ranks_report_it():
    progress = after(started(), step(1, rank=0), step(1, rank=1), step(2, rank=1))
    assert (progress.step, progress.steps_executed, progress.tokens_executed) == (2, 2, 2000)


def test_steps_that_are_repeated_after_a_resume_count_once_in_the_curve():
    events = [started(), *(step(n) for n in range(1, 6)), lost(), started(1, resumed=3)]
    again = [step(4, attempt=1, loss=4.4), step(5, attempt=1, loss=4.5)]
    progress = after(*events, *again)
    assert progress.step == 5
    assert [point[0] for point in progress.loss_history] == [1, 2, 3, 4, 5]
    assert progress.loss_history[3] == (4, 4.4)


def test_repeated_steps_stay_in_what_was_executed():
    events = [started(), *(step(n) for n in range(1, 6)), started(1, resumed=3)]
    progress = after(*events, step(4, attempt=1))
    assert (progress.step, progress.steps_executed) == (4, 6)


def test_a_late_step_of_an_older_attempt_is_passed_over():
    progress = after(started(), step(1), started(1, resumed=0), step(9, attempt=0))
    assert progress.step == 0


def test_an_attempt_whose_start_is_read_after_its_steps_counts_them_once():
    progress = after(started(), step(1), step(2), step(2, attempt=1), started(1, resumed=1))
    assert progress.step == 2
    assert progress.steps_executed == 3
    assert progress.attempt == 1


def test_losses_first_last_and_best():
    progress = after(step(1, loss=5.0), step(2, loss=3.0), step(3, loss=4.0))
    assert (progress.first_loss, progress.loss, progress.best_loss) == (5.0, 4.0, 3.0)


def test_a_loss_that_is_no_number_is_shown_and_never_the_best():
    progress = after(step(1, loss=5.0), step(2, loss=math.nan))
    assert math.isnan(progress.loss)
    assert progress.best_loss == 5.0


def test_the_rate_is_the_median_of_the_last_twenty_steps():
    slow = [step(n, step_seconds=9.0) for n in range(1, 11)]
    fast = [step(n, step_seconds=0.5) for n in range(11, 31)]
    assert after(*slow, *fast).tokens_per_second == 2000


def test_the_slowest_rank_sets_the_time_of_a_step():
    progress = after(step(1, rank=0, step_seconds=0.5), step(1, rank=1, step_seconds=2.0))
    assert progress.step_seconds == 2.0


def test_the_share_of_waiting_for_data():
    assert after(step(1), step(2)).data_wait_share == pytest.approx(0.2)


def test_the_time_that_is_left():
    assert after(started(), *(step(n) for n in range(1, 11))).eta_seconds == 45.0


def test_nothing_is_left_of_a_run_that_is_over():
    assert after(started(), step(1), ended("done")).eta_seconds is None


def test_each_rank_has_a_row_with_its_age():
    rows = after(step(3, rank=1), step(4, rank=0, update_ratio=1e-3), now=10.0).ranks
    assert [(row.rank, row.step, row.age_seconds) for row in rows] == [(0, 4, 6.0), (1, 3, 7.0)]
    assert rows[0].update_ratio == 1e-3


def test_an_update_ratio_is_kept_until_the_next_one():
    rows = after(step(1, update_ratio=1e-3), step(2), step(3)).ranks
    assert rows[0].update_ratio == 1e-3


def test_waiting_for_data_adds_up_for_each_rank():
    rows = after(step(1), step(2), step(2, rank=1)).ranks
    assert [round(row.data_wait_total_seconds, 3) for row in rows] == [0.2, 0.1]


def test_a_rank_is_seen_when_it_is_ready():
    ready = RankReady(time_unix=5.0, rank=1, attempt=0, pid=7, host="a", parameters=9)
    assert after(started(), ready).ranks[0].last_event_unix == 5.0


def test_ranks_that_a_smaller_attempt_does_not_have_are_gone():
    progress = after(started(), step(1, rank=1), started(1, ranks=1))
    assert progress.ranks == ()


def test_lost_ranks_are_those_of_the_newest_loss_and_all_are_counted():
    progress = after(started(), lost(1), lost(0), started(1), lost(1, attempt=1))
    assert (progress.lost_ranks, progress.ranks_lost) == ((1,), 3)


def test_a_rank_that_failed_and_was_lost_counts_once():
    failed = RankFailed(time_unix=1, rank=1, attempt=0, code="run", message="m", hint="h")
    assert after(failed, lost(1)).ranks_lost == 1


def test_the_last_checkpoint():
    progress = after(saved(20, at=30.0), saved(40, at=60.0))
    assert (progress.checkpoint_step, progress.checkpoint_unix) == (40, 60.0)


def test_findings_are_kept_but_not_without_limit():
    many = [
        Finding(time_unix=n, detector="d", severity="warning", message=str(n)) for n in range(300)
    ]
    assert [one.message for one in after(*many).findings] == [str(n) for n in range(100, 300)]


def test_the_curve_of_a_long_run_stays_short():
    progress = after(*(step(n) for n in range(1, 5001)))
    assert len(progress.loss_history) <= 512
    assert progress.loss_history[-1][0] >= 4990


def test_progress_is_a_record_that_can_be_written():
    progress = after(started(), step(1), saved(1))
    assert decode(RunProgress, encode(progress), where="x") == progress


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(0, 2)), max_size=60))
def test_any_order_of_steps_gives_a_rising_curve_and_never_falls_below_what_was_executed(rows):
    events = [step(number, rank=rank, attempt=attempt) for rank, number, attempt in rows]
    progress = after(*events)
    steps = [point[0] for point in progress.loss_history]
    assert steps == sorted(set(steps))
    assert progress.steps_executed >= len(steps)
    assert progress.step_histogram.count == progress.steps_executed


def test_the_last_evaluation_is_shown_with_its_step():
    progress = after(started(), step(1), evaluated(1), step(2), evaluated(2, 4.25), step(3))
    assert (progress.validation_loss, progress.validation_step) == (4.25, 2)


def test_an_evaluation_beyond_the_step_of_a_resume_is_forgotten():
    progress = after(started(), step(1), step(2), evaluated(2), lost(), started(1, resumed=1))
    assert progress.validation_loss is None


def test_the_noise_scale_stays_from_the_last_step_that_had_one():
    assert after(started(), step(1, noise_scale=12.0), step(2)).noise_scale == 12.0


def moved(number, *, what="rows", back=False):
    return Rebalanced(
        time_unix=float(number), attempt=0, step=number, moved=what, before=(4, 4), after=(6, 2),
        gain=1.5, reason="rank 1 is slow", is_rollback=back,
    )  # fmt: skip


def test_moves_of_work_are_kept_with_their_reasons():
    progress = after(started(), step(1), moved(1), moved(2, what="layers"), moved(3, back=True))
    assert [move.step for move in progress.moves] == [1, 2, 3]
    assert progress.moves_made == (("layers", 1), ("rows", 2))


def test_only_the_newest_moves_are_kept():
    progress = after(started(), *(moved(number) for number in range(200)))
    assert len(progress.moves) == 50
    assert progress.moves_made == (("rows", 200),)


def test_a_rank_adds_up_what_it_computed_and_waited():
    two = [step(n, rows=4, stage_seconds=(0.1, 0.2), wait_seconds=0.05) for n in (1, 2)]
    (row,) = after(started(), *two).ranks
    assert (row.rows, row.wait_seconds) == (4, 0.05)
    assert row.compute_seconds == pytest.approx(0.3)
    assert row.compute_total_seconds == pytest.approx(0.6)
    assert row.wait_total_seconds == pytest.approx(0.1)


def test_steps_of_older_versions_say_nothing_about_computing():
    (row,) = after(started(), step(1)).ranks
    assert (row.rows, row.compute_seconds, row.wait_seconds) == (None, None, None)
