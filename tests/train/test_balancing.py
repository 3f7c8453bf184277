"""Rows move away from a slow rank while it trains, and the curve stays that of one process.

Slow means a sleep for each row and layer: on a machine with few cores real slowness is not one
rank's own. Where only the curve counts, rows move by a script.
"""

from pathlib import Path
from statistics import median

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.events import EvaluationDone, Rebalanced
from cnai.core.layout import Layout
from cnai.core.runfolder import RunFolder, read_events
from training_case import Case, losses, norms, plan_of, steps

pytestmark = [pytest.mark.dist, pytest.mark.slow]
STEPS = 12
FAST, SLOW = 0.012, 0.036
SCRIPT = {2: (5, 3), 5: (2, 6), 9: (4, 4)}
TRAIN = {"evaluate_every": STEPS, "evaluate_sequences": 12}


@pytest.fixture(scope="module")
def one_process(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("one")
    return Case(folder, plan_of(Layout()), steps=STEPS, train=TRAIN).run(gang)


@pytest.fixture(scope="module")
def slow_rank(gang: LocalGang, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    case = Case(
        tmp_path_factory.mktemp("slow"),
        plan_of(Layout(data=2)),
        steps=STEPS,
        train=TRAIN,
        slow={0: FAST, 1: SLOW},
        balance=0.1,
    )
    return case.run(gang)


def moves(run: RunFolder) -> list[Rebalanced]:
    return [event for event in read_events(run) if isinstance(event, Rebalanced)]


def rows(run: RunFolder, rank: int) -> list[int | None]:
    return [event.rows for event in steps(run) if event.rank == rank]


def seconds(run: RunFolder, first: int, end: int) -> float:
    return median(e.step_seconds for e in steps(run) if e.rank == 0 and first <= e.step <= end)


def test_a_slow_rank_gets_fewer_rows(slow_rank: RunFolder) -> None:
    (move,) = moves(slow_rank)
    assert move.moved == "rows"
    assert move.before == (4, 4)
    assert move.after[0] > move.after[1]
    assert sum(move.after) == 8
    assert rows(slow_rank, 1)[move.step :] == [move.after[1]] * (STEPS - move.step)
    assert "data rank 1" in move.reason


def test_steps_become_shorter(slow_rank: RunFolder) -> None:
    (move,) = moves(slow_rank)
    before = seconds(slow_rank, 2, move.step)
    assert before > 1.1 * seconds(slow_rank, move.step + 2, STEPS)  # benchmarks/balance.py


def test_the_curve_is_that_of_one_process(slow_rank: RunFolder, one_process: RunFolder) -> None:
    assert losses(slow_rank) == pytest.approx(losses(one_process), abs=1e-5)
    assert norms(slow_rank) == pytest.approx(norms(one_process), rel=1e-4)


def test_evaluation_judges_the_same_rows(slow_rank: RunFolder, one_process: RunFolder) -> None:
    found, expected = (
        [event for event in read_events(run) if isinstance(event, EvaluationDone)]
        for run in (slow_rank, one_process)
    )
    assert found[-1].sequences == expected[-1].sequences == 12
    assert found[-1].loss == pytest.approx(expected[-1].loss, abs=1e-5)


def test_the_noise_scale_stays_that_of_even_shares(
    gang: LocalGang, slow_rank: RunFolder, tmp_path: Path
) -> None:
    even = Case(tmp_path, plan_of(Layout(data=2)), steps=STEPS, train=TRAIN).run(gang)
    found = {e.step: e.noise_scale for e in steps(slow_rank) if e.rank == 0 and e.noise_scale}
    expected = {e.step: e.noise_scale for e in steps(even) if e.rank == 0 and e.noise_scale}
    assert found[2] == pytest.approx(expected[2], rel=1e-3)
    assert 0.2 < found[STEPS] / expected[STEPS] < 5


def test_computing_and_waiting_are_told_apart(slow_rank: RunFolder) -> None:
    (move,) = moves(slow_rank)
    early = [e for e in steps(slow_rank) if 2 <= e.step <= move.step]
    fast, slow = ([e for e in early if e.rank == rank] for rank in (0, 1))
    assert median(e.compute_seconds for e in slow) > 1.5 * median(e.compute_seconds for e in fast)
    assert median(e.wait_seconds or 0 for e in fast) > median(e.wait_seconds or 0 for e in slow)
    for event in early:
        assert event.compute_seconds + (event.wait_seconds or 0) <= event.step_seconds


def test_equally_fast_ranks_keep_their_rows(gang: LocalGang, tmp_path: Path) -> None:
    # On a busy machine ranks are unequal by their neighbours; the default threshold is tried by
    # tests/plan/test_shares.py.
    slow = {0: SLOW, 1: SLOW}
    case = Case(tmp_path, plan_of(Layout(data=2)), steps=10, slow=slow, balance=0.5)
    run = case.run(gang)
    assert moves(run) == []
    assert set(rows(run, 0)) == {4}


@pytest.mark.parametrize(
    ("layout", "schedule"),
    [
        (Layout(data=2, pipeline=2), "1F1B"),
        (Layout(data=2, pipeline=2), "ZBVZeroBubble"),
        (Layout(data=2, model=2), "1F1B"),
        (Layout(data=2, context=2), "1F1B"),
    ],
    ids=str,
)
def test_rows_that_move_leave_the_curve_as_it_is(
    gang: LocalGang, one_process: RunFolder, tmp_path: Path, layout: Layout, schedule: str
) -> None:
    plan = plan_of(layout, schedule=schedule, microbatches=4)
    run = Case(tmp_path, plan, steps=STEPS, script=SCRIPT, train=TRAIN).run(gang)
    assert [event.after for event in moves(run)] == list(SCRIPT.values())
    assert rows(run, 0) == [4, 4, 5, 5, 5, 2, 2, 2, 2, 4, 4, 4]
    assert losses(run) == pytest.approx(losses(one_process), abs=1e-5)
    assert norms(run) == pytest.approx(norms(one_process), rel=1e-4)


def test_pieces_of_a_micro_batch_count_by_their_rows(
    gang: LocalGang, one_process: RunFolder, tmp_path: Path
) -> None:
    plan = plan_of(Layout(data=2), microbatches=1)
    script = {1: (5, 3), 3: (7, 1)}
    run = Case(tmp_path, plan, steps=STEPS, script=script, train={**TRAIN, "z_loss": 0.0})
    found = run.run(gang)
    assert losses(found) == pytest.approx(losses(one_process), abs=1e-5)
    assert norms(found) == pytest.approx(norms(one_process), rel=1e-4)


def test_a_resumed_run_begins_with_even_shares(gang: LocalGang, tmp_path: Path) -> None:
    case = Case(tmp_path, plan_of(Layout(data=2)), steps=6, script={2: (6, 2)}, train=TRAIN)
    case.run(gang)
    case.attempt, case.resume_step, case.steps, case.script = 1, 6, STEPS, {8: (3, 5)}
    run = case.run(gang)
    assert rows(run, 0)[6:] == [4, 4, 3, 3, 3, 3]
