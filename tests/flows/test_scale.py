"""`ai-cli scale` changes the layout of a run, and nothing else."""

import json
import os
import shutil
import signal

import pytest

from chain_case import Command, curve, left_of, pids, reached, run_in, write_spec, write_texts
from cnai import api
from cnai.core.events import AttemptStarted, LayoutChanged, RankLost
from cnai.core.runfolder import read_events
from cnai.core.spec import load_spec
from cnai.flows.folder import spec_of
from cnai.flows.scale import scaled_spec

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 300
LONG = {
    "train.steps": STEPS,
    "train.batch": 8,
    "checkpoint.every_steps": 25,
    "resources.ranks": None,
}
TRAIN = ("train", "run.yaml", "-y")
FOUR = ("--set", "parallel.data_parallel.size=4")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_texts(folder / "texts")
        write_spec(folder, LONG)
        api.train("run.yaml")
    return curve(run_in(folder))


@pytest.fixture
def run(place):
    write_spec(place, LONG)
    return run_in(place)


@pytest.fixture(scope="module")
def stopped_folder(tmp_path_factory):
    """A folder with a run that was stopped after some steps; not to be changed."""
    folder = tmp_path_factory.mktemp("stopped")
    write_texts(folder / "texts")
    write_spec(folder, LONG)
    command = Command(*TRAIN, folder=folder)
    try:
        command.until(lambda: reached(run_in(folder), 30))
        command.press_ctrl_c()
        assert command.wait() == 130
    finally:
        command.end()
    return folder


@pytest.fixture
def stopped(place, stopped_folder):
    """A copy of a stopped run."""
    shutil.copytree(stopped_folder, place, dirs_exist_ok=True)
    return run_in(place)


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def layouts(run):
    return [event.layout for event in of(AttemptStarted, run)]


def is_the_curve(run, undisturbed):
    found = curve(run)
    assert sorted(found) == list(range(1, STEPS + 1))
    return found == pytest.approx(undisturbed, abs=1e-5)


def test_a_living_run_changes_over_at_a_step_and_keeps_its_curve(start, ai_cli, run, undisturbed):
    command = start(*TRAIN)
    command.until(lambda: reached(run, 40))
    ran = ai_cli("scale", run.root, *FOUR, "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "run": str(run.root),
        "before": "dp2 x tp1 x pp1",
        "after": "dp4 x tp1 x pp1",
        "process": command.process.pid,
    }
    command.until(lambda: pids(run, attempt=1).get(3))
    assert ai_cli("scale", run.root, "--set", "parallel.data_parallel.size=1",
                  "--set", "parallel.pipeline_parallel.stages=2").code == 0  # fmt: skip
    assert command.wait() == 0, command.err
    assert layouts(run) == ["dp2 x tp1 x pp1", "dp4 x tp1 x pp1", "dp1 x tp1 x pp2"]
    first, second = of(LayoutChanged, run)
    assert (first.before, first.after) == ("dp2 x tp1 x pp1", "dp4 x tp1 x pp1")
    assert first.reason == second.reason == "asked for with `ai-cli scale`"
    assert first.step == of(AttemptStarted, run)[1].resumed_step >= 40
    assert of(RankLost, run) == []
    assert is_the_curve(run, undisturbed)
    assert left_of(command) == []


def test_a_scaled_run_keeps_its_size_when_its_supervisor_is_killed(start, ai_cli, run):
    command = start(*TRAIN)
    command.until(lambda: reached(run, 30))
    assert ai_cli("scale", run.root, *FOUR).code == 0
    command.until(lambda: pids(run, attempt=1).get(3))
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait()
    again = start(*TRAIN)
    assert again.wait() == 0, again.err
    assert layouts(run)[-1] == "dp4 x tp1 x pp1"


def test_a_stopped_run_starts_again_in_the_new_layout(start, ai_cli, stopped, undisturbed):
    ran = ai_cli("scale", stopped.root, *FOUR)
    assert (ran.code, ran.out) == (
        0,
        f"dp2 x tp1 x pp1 -> dp4 x tp1 x pp1 when run {stopped.root} is started again\n",
    )
    again = start(*TRAIN)
    assert again.wait() == 0, again.err
    assert layouts(stopped) == ["dp2 x tp1 x pp1", "dp4 x tp1 x pp1"]
    assert is_the_curve(stopped, undisturbed)


@pytest.mark.parametrize(
    ("sets", "code", "words"),
    [
        (["parallel.data_parallel.size=3"], 2, "does not divide"),
        (["parallel.pipeline_parallel.stages=9"], 2, "has only 2 layers"),
        (["parallel.data_parallel.size=0"], 2, "1 or more"),
        (["train.learning_rate=0.5"], 2, "cannot be changed by scaling"),
        (["parallel.data_paralel.size=4"], 2, "did you mean"),
        ([], 2, "nothing is to be changed"),
    ],
)
def test_what_the_planner_refuses_leaves_the_run_as_it_is(ai_cli, stopped, sets, code, words):
    before = {file: file.read_bytes() for file in stopped.root.glob("*.*")}
    ran = ai_cli("scale", stopped.root, *(word for one in sets for word in ("--set", one)))
    assert ran.code == code
    assert words in ran.err
    assert {file: file.read_bytes() for file in stopped.root.glob("*.*")} == before


def test_a_newer_word_in_the_spec_overrules_the_scaling(ai_cli, stopped, place):
    assert ai_cli("scale", stopped.root, *FOUR).code == 0
    mine = load_spec("run.yaml").spec
    assert scaled_spec(mine).parallel.data_parallel.size == 4
    newer = load_spec("run.yaml", sets=["parallel.data_parallel.size=1"]).spec
    assert scaled_spec(newer).parallel.data_parallel.size == 1
    assert ai_cli("scale", stopped.root, "--set", "parallel.data_parallel.size=2").code == 0
    assert scaled_spec(mine).parallel.data_parallel.size == 2
    assert spec_of(stopped).parallel.data_parallel.size == 2


def test_a_finished_run_is_not_scaled(ai_cli, finished):
    ran = ai_cli("scale", finished.root, "--set", "parallel.data_parallel.size=1",
                 "--set", "resources.ranks=1")  # fmt: skip
    assert ran.code == 5
    assert "trained to its last step" in ran.err
    assert not finished.scale_file.exists()
