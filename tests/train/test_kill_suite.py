"""kill -9 at every place of a training: it ends on the same curve and leaves nothing behind.

`tools/kill_suite.sh 5` repeats it; a test that fails once in five is a flake to be cured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import chain_case
from chain_case import curve, run_in, write_spec, write_texts
from cnai import api
from cnai.core.events import AttemptStarted, RankLost
from cnai.core.runfolder import read_events
from cnai.train.manifest import verify_checkpoint
from elastic_case import Machines, committed_rows, train_on

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 40
SPEC = {
    "train.steps": STEPS,
    "train.batch": 4,
    "train.timeout_seconds": 30,
    "checkpoint.every_steps": 10,
    "parallel.data_parallel.size": 2,
    "parallel.pipeline_parallel.stages": 2,
    "resources.ranks": None,
}
CASES = {
    "a rank in a step": [("step", 0, 1, 15)],
    "the last rank in its first step": [("step", 0, 3, 0)],
    "a rank while it saves": [("save", 0, 2, 0)],
    "rank 0 while it saves": [("save", 0, 0, 0)],
    "rank 0 before the checkpoint has its name": [("publish", 0, 0, 0)],
    "a rank while it loads": [("step", 0, 1, 25), ("load", 1, 2, 0)],
    "a rank at its start": [("start", 0, 1, 0)],
    "a rank at a later start": [("step", 0, 0, 15), ("start", 1, 3, 0)],
    "two ranks at once": [("step", 0, 1, 15), ("step", 0, 2, 15)],
    "one rank again and again": [("step", 0, 1, 15), ("step", 1, 1, 3), ("step", 2, 1, 12)],
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_texts(folder / "texts")
        write_spec(folder, SPEC)
        api.train("run.yaml")
    return curve(run_in(folder))


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A mark on every process that the test starts, by which it finds what is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(chain_case.MARK, str(tmp_path))
    write_texts(tmp_path / "texts")
    write_spec(tmp_path, SPEC)
    shared = set(Path("/dev/shm").iterdir())
    yield str(tmp_path)
    assert chain_case.left(str(tmp_path)) == []
    assert set(Path("/dev/shm").iterdir()) <= shared


def kills(*places, whom="self"):
    return json.dumps([
        {"where": where, "attempt": attempt, "rank": rank, "step": step, "whom": whom}
        for where, attempt, rank, step in places
    ])  # fmt: skip


def is_whole(run, undisturbed):
    assert curve(run) == pytest.approx(undisturbed, abs=1e-5)
    assert sorted(curve(run)) == list(range(1, STEPS + 1))
    assert all(len(rows) == 4 for rows in committed_rows(run).values())
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-30", "step-40"]
    verify_checkpoint(run.checkpoint(STEPS))
    return True


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


@pytest.mark.parametrize("case", CASES)
def test_killed_ranks_cost_time_and_nothing_else(mark, undisturbed, case):
    places = CASES[case]
    environment = {"KILLS": kills(*places)}
    run, result = train_on(Path("run.yaml"), Machines({0: 4}), environment=environment)
    assert is_whole(run, undisturbed)
    assert {(attempt, rank) for _, attempt, rank, _ in places} <= {
        (lost.attempt, lost.rank) for lost in of(RankLost, run) if lost.exit_code == -9
    }
    assert result.restarts == len({attempt for _, attempt, _, _ in places})
    assert sum(result.goodput.parts.values()) == pytest.approx(result.goodput.elapsed_seconds)
    assert result.goodput.recovery_seconds > 0


@pytest.mark.parametrize("where", ["step", "save"])
def test_a_killed_server_costs_one_attempt(mark, undisturbed, where):
    environment = {"KILLS": kills((where, 0, 1, 15), whom="server")}
    run, _ = train_on(Path("run.yaml"), Machines({0: 4}), environment=environment)
    assert is_whole(run, undisturbed)
    assert len(of(AttemptStarted, run)) == 2


@pytest.mark.parametrize("where", ["start", "step", "save", "publish"])
def test_after_the_supervisor_was_killed_the_same_command_goes_on(mark, undisturbed, where):
    command = [sys.executable, "-m", "elastic_case", "run.yaml", "4"]
    tests = Path(chain_case.__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((chain_case.SOURCES, str(tests))),
        "KILLS": kills((where, 0, 0, 15), whom="supervisor"),
    }
    assert subprocess.run(command, check=False, env=environment, timeout=120).returncode == -9
    assert chain_case.left(mark, 20) == []
    again = subprocess.run(command, check=False, env=environment, timeout=120)
    assert again.returncode == 0
    run = run_in(Path.cwd())
    assert is_whole(run, undisturbed)
    assert len(of(AttemptStarted, run)) == 2
    assert of(RankLost, run) == []
