"""A run finds its slow stage by itself, cuts its pipeline anew, and stays on its curve."""

from statistics import median

import pytest

from balance_case import train_slowly
from chain_case import curve, run_in, settle, write_spec
from cnai import api
from cnai.core.events import AttemptStarted, LayoutChanged, Rebalanced, StepDone
from cnai.core.layout import ParallelPlan
from cnai.core.records import decode
from cnai.core.runfolder import read_events

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 32
FAST, SLOW = 0.008, 0.016
TWO = {
    "model.layers": 12,
    "train.steps": STEPS,
    "train.batch": 8,
    "parallel.data_parallel": {"size": 1},
    "parallel.pipeline_parallel": {"stages": 2, "microbatches": 8},
    "resources.ranks": None,
    "checkpoint.every_steps": 1000,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        settle(folder, patch)
        write_spec(folder, {**TWO, "parallel.pipeline_parallel": None})
        api.train("run.yaml")
    return curve(run_in(folder))


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def computing(run, attempt):
    """Return how long the slow rank computes in a step."""
    done = [e for e in of(StepDone, run) if (e.attempt, e.rank) == (attempt, 1)]
    return median(e.compute_seconds for e in done[1:])


def test_a_slow_stage_gives_layers_away_while_it_trains(place, undisturbed):
    run, result, notes = train_slowly(write_spec(place, TWO), [FAST, SLOW])
    move = of(Rebalanced, run)[0]
    assert (move.moved, move.before) == ("layers", (6, 6))
    assert move.after[1] < 6
    assert sum(move.after) == 12
    assert not move.is_rollback
    second = of(AttemptStarted, run)[1]
    assert second.resumed_step == move.step <= 12
    plan = decode(ParallelPlan, run.attempt_plan(1).read_bytes(), where="plan")
    assert tuple(s.end_layer - s.first_layer for s in plan.stages) == move.after
    assert of(LayoutChanged, run)[0].plan_digest == plan.digest == second.plan_digest
    # What it does to the time of a step is measured by benchmarks/balance.py.
    assert computing(run, 0) > computing(run, 1)
    found = curve(run)
    assert sorted(found) == list(range(1, STEPS + 1))
    assert found == pytest.approx(undisturbed, abs=1e-5)
    assert result.goodput.recovery_seconds > 0
    assert any("layers moved, 6, 6 ->" in line for line in notes.told)


def test_equal_stages_are_left_alone(place):
    spec = write_spec(place, {**TWO, "train.steps": 12})
    run, _, _ = train_slowly(spec, [FAST] * 2)
    assert of(Rebalanced, run) == []
    assert len(of(AttemptStarted, run)) == 1


def test_a_cut_that_does_not_pay_is_taken_back(place, undisturbed):
    """Every step of the second attempt takes longer, whatever its cut."""
    run, _, _ = train_slowly(write_spec(place, TWO), [FAST, SLOW], punish=2.0)
    first, second = of(Rebalanced, run)[:2]
    assert second.is_rollback
    assert second.after == first.before
    assert second.gain < 1
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)


def test_who_does_not_want_it_keeps_the_cut(place):
    spec = write_spec(place, {**TWO, "train.steps": 12, "train.balance": {"layers": False}})
    run, _, _ = train_slowly(spec, [FAST, SLOW])
    assert of(Rebalanced, run) == []
