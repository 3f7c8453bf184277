"""A run whose machines become fewer goes on with fewer ranks, and grows back, on one curve."""

import hashlib
import json

import pytest

from chain_case import curve, run_in, write_spec, write_texts
from cnai import api
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import PlanError
from cnai.core.events import AttemptStarted, LayoutChanged, RankLost
from cnai.core.layout import ParallelPlan
from cnai.core.records import decode
from cnai.core.runfolder import read_events
from cnai.core.spec import load_spec
from cnai.flows.data import reader_of_run
from cnai.flows.stages import recorded
from elastic_case import Machines, committed_rows, train_on

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 120
FOUR = {
    "train.steps": STEPS,
    "train.batch": 8,
    "train.elastic": True,
    "train.regrow_seconds": 0,
    "parallel.data_parallel.size": 4,
    "resources.ranks": None,
    "checkpoint.every_steps": 10,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The losses of a training on two ranks that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_texts(folder / "texts")
        write_spec(folder, {**FOUR, "parallel.data_parallel.size": 2})
        api.train("run.yaml")
    return curve(run_in(folder))


def kills(*places):
    """Kill ranks (attempt, rank) in the n-th step of their life."""
    found = [{"where": "step", "attempt": a, "rank": r, "step": s} for a, r, s in places]
    return {"KILLS": json.dumps(found)}


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def layouts(run):
    return [event.layout for event in of(AttemptStarted, run)]


def uses_each_row_once(run):
    """Tell whether every step used the rows that one process reads, each of them once."""
    manifest = recorded(run, "data", DatasetManifest)
    reader = reader_of_run(load_spec(run.spec_file).spec, run, manifest)
    expected = {
        step: [
            (index, hashlib.sha256(row.tobytes()).hexdigest()[:16])
            for index, row in enumerate(reader.rows(step, 0, 8))
        ]
        for step in range(STEPS)
    }
    return committed_rows(run) == expected


def test_four_ranks_become_two_and_four_again_on_the_same_curve(place, undisturbed):
    spec = write_spec(place, FOUR)
    run, result = train_on(spec, Machines({0: 4, 30: 2, 60: 4}))
    assert layouts(run) == ["dp4 x tp1 x pp1", "dp2 x tp1 x pp1", "dp4 x tp1 x pp1"]
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)
    assert sorted(curve(run)) == list(range(1, STEPS + 1))
    assert uses_each_row_once(run)
    assert [event.reason for event in of(LayoutChanged, run)] == [
        "the machines hold 2 of 4 ranks",
        "the machines hold all 4 ranks",
    ]
    assert of(RankLost, run) == []
    assert result.restarts == 2
    assert result.layout == "dp4 x tp1 x pp1"


def test_each_attempt_keeps_its_plan(place):
    spec = write_spec(place, FOUR)
    run, _ = train_on(spec, Machines({0: 4, 30: 2}))
    plans = [
        decode(ParallelPlan, run.attempt_plan(number).read_bytes(), where="plan")
        for number in (0, 1)
    ]
    assert [str(plan.layout) for plan in plans] == layouts(run)
    assert [plan.digest for plan in plans] == [e.plan_digest for e in of(AttemptStarted, run)]
    assert run.plan_file.read_bytes() == run.attempt_plan(1).read_bytes()


def test_a_place_that_loses_its_rank_twice_is_given_up(place, undisturbed):
    spec = write_spec(place, {**FOUR, "train.regrow_seconds": 3600})
    dies = kills((0, 3, 25), (1, 3, 15))
    run, _ = train_on(spec, Machines({0: 4}), environment=dies)
    assert layouts(run) == ["dp4 x tp1 x pp1"] * 2 + ["dp2 x tp1 x pp1"]
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)
    assert uses_each_row_once(run)
    assert {(lost.attempt, lost.rank) for lost in of(RankLost, run) if lost.exit_code == -9} == {
        (0, 3), (1, 3),
    }  # fmt: skip
    assert "lost" in of(LayoutChanged, run)[0].reason


def test_a_given_up_place_is_tried_again_after_a_while(place, undisturbed):
    spec = write_spec(place, {**FOUR, "train.give_up_rank_after": 1, "train.regrow_seconds": 1})
    dies = kills((0, 1, 15))
    run, _ = train_on(spec, Machines({0: 4}), environment=dies)
    assert layouts(run) == ["dp4 x tp1 x pp1", "dp2 x tp1 x pp1", "dp4 x tp1 x pp1"]
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)


def test_three_axes_shrink_the_data_axis_first(place, undisturbed):
    sizes = {
        "parallel.data_parallel.size": 2,
        "parallel.model_parallel.size": 2,
        "parallel.pipeline_parallel.stages": 2,
    }
    spec = write_spec(place, {**FOUR, **sizes})
    run, _ = train_on(spec, Machines({0: 8, 20: 7, 50: 3}))
    assert layouts(run) == ["dp2 x tp2 x pp2", "dp1 x tp2 x pp2", "dp1 x tp2 x pp1"]
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)
    assert uses_each_row_once(run)


def test_a_run_that_is_not_elastic_keeps_its_layout(place):
    spec = write_spec(place, {**FOUR, "train.elastic": False, "train.steps": 30})
    run, _ = train_on(spec, Machines({0: 4, 10: 2}))
    assert layouts(run) == ["dp4 x tp1 x pp1"]


def test_without_any_machine_left_the_run_says_so_and_can_go_on_later(place):
    spec = write_spec(place, {**FOUR, "train.steps": 20})
    with pytest.raises(PlanError, match="the machines hold 0 of 4 ranks"):
        train_on(spec, Machines({0: 0}))
    run, _ = train_on(spec, Machines({0: 4}))
    assert sorted(curve(run)) == list(range(1, 21))
