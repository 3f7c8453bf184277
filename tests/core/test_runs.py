import os

import pytest

from cnai.core.events import AttemptStarted, RunEnded, StepDone
from cnai.core.runfolder import RunFolder
from cnai.core.runs import RunStatus, list_runs, run_state, state_of


def started(time, attempt=0):
    return AttemptStarted(
        time_unix=time, attempt=attempt, ranks=2, steps=10, plan_digest="d",
        layout=f"dp{attempt + 1}", resumed_step=0,
    )  # fmt: skip


def step(time, number):
    return StepDone(
        time_unix=time, rank=0, attempt=0, step=number, loss=number / 2, grad_norm=1.0,
        update_ratio=None, learning_rate=0.1, tokens=8, step_seconds=1.0, data_wait_seconds=0.0,
    )  # fmt: skip


def ended(time, outcome):
    return RunEnded(time_unix=time, outcome=outcome, step=3, seconds=1.0)


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "mine")


@pytest.mark.parametrize(
    ("events", "alive", "status"),
    [
        ([], False, RunStatus.NEW),
        ([], True, RunStatus.RUNNING),
        ([started(1.0)], True, RunStatus.RUNNING),
        ([started(1.0), step(2.0, 1)], False, RunStatus.BROKEN_OFF),
        ([started(1.0), ended(2.0, "done")], False, RunStatus.DONE),
        ([started(1.0), ended(2.0, "stopped")], False, RunStatus.STOPPED),
        ([started(1.0), ended(2.0, "failed")], False, RunStatus.FAILED),
        ([started(1.0), ended(2.0, "melted")], False, RunStatus.FAILED),
        ([started(1.0), ended(2.0, "failed"), started(3.0, 1)], False, RunStatus.BROKEN_OFF),
        ([started(1.0), ended(2.0, "done")], True, RunStatus.RUNNING),
    ],
)
def test_the_status_follows_from_events_and_owner(run, events, alive, status):
    assert state_of(run, events, alive=alive).status is status


def test_the_last_step_tells_step_and_loss(run):
    state = state_of(run, [started(1.0), step(2.0, 5), started(3.0, 1), step(4.0, 3)], alive=True)
    assert (state.step, state.loss, state.attempts, state.layout) == (3, 1.5, 2, "dp2")
    assert (state.started_unix, state.steps) == (1.0, 10)


def test_a_run_that_this_process_holds_is_running(tmp_path):
    run = RunFolder.create(tmp_path / "a")
    with run.locked():
        assert run.owner() == os.getpid()
        assert run_state(run).status is RunStatus.RUNNING


def test_runs_are_listed_by_their_start(tmp_path):
    for name, time in (("late", 9.0), ("early", 1.0)):
        with RunFolder.create(tmp_path / name).writer("agent") as writer:
            writer.write(started(time))
    RunFolder.create(tmp_path / "new")
    (tmp_path / "no run").mkdir()
    (tmp_path / "file").touch()
    assert [state.name for state in list_runs(tmp_path)] == ["early", "late", "new"]


def test_an_absent_folder_has_no_runs(tmp_path):
    assert list_runs(tmp_path / "no") == []
