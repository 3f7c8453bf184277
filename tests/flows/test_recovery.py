"""What happens to a training whose processes are killed, stopped or broken on purpose."""

import contextlib
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from chain_case import curve, left_of, pids, reached, run_in, settle, write_spec
from cnai import api
from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    Finding,
    RankFailed,
    RankLost,
    RunEnded,
    StepDone,
)
from cnai.core.runfolder import read_events

pytestmark = [pytest.mark.slow, pytest.mark.dist]
STEPS = 300
LONG = {"train.steps": STEPS, "checkpoint.every_steps": 25}
TRAIN = ("train", "run.yaml", "-y")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The losses of a training that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        settle(folder, patch)
        write_spec(folder, LONG)
        api.train("run.yaml")
    return curve(run_in(folder))


@pytest.fixture
def run(place):
    """A training that takes seconds, not begun yet."""
    write_spec(place, LONG)
    return run_in(place)


@pytest.fixture(autouse=True)
def _shared_memory_is_given_back():
    before = _shared_memory()
    yield
    assert _shared_memory() <= before


def _shared_memory():
    return {path.name for path in Path("/dev/shm").iterdir()}


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def is_the_curve(run, undisturbed):
    found = curve(run)
    assert sorted(found) == list(range(1, STEPS + 1))
    return found == pytest.approx(undisturbed, abs=1e-5)


def at_step_60(command, run):
    command.until(lambda: reached(run, 60))
    return pids(run)


def test_a_killed_rank_is_replaced_and_the_curve_goes_on(start, run, undisturbed):
    command = start(*TRAIN)
    rank, pid = random.choice(list(at_step_60(command, run).items()))
    os.kill(pid, signal.SIGKILL)
    assert command.wait() == 0, command.err
    assert (rank, -9) in {(lost.rank, lost.exit_code) for lost in of(RankLost, run)}
    first, second = of(AttemptStarted, run)
    assert (first.resumed_step, second.resumed_step % 25) == (0, 0)
    assert second.resumed_step >= 25
    assert "starting the ranks again" in command.err
    assert f"resuming from the checkpoint of step {second.resumed_step}" in command.err
    assert is_the_curve(run, undisturbed)
    assert left_of(command) == []


def test_a_killed_fork_server_is_replaced(start, run, undisturbed):
    command = start(*TRAIN)
    ranks = at_step_60(command, run)
    (server,) = psutil.Process(command.process.pid).children()
    server.kill()
    assert command.wait() == 0, command.err
    assert {lost.rank for lost in of(RankLost, run)} == set(ranks)
    assert is_the_curve(run, undisturbed)
    assert left_of(command) == []


def test_a_rank_that_hangs_is_given_up_after_the_timeout(start, run, undisturbed):
    command = start(*TRAIN, "--set", "train.timeout_seconds=6")
    os.kill(at_step_60(command, run)[0], signal.SIGSTOP)
    assert command.wait() == 0, command.err
    assert len(of(AttemptStarted, run)) == 2
    assert is_the_curve(run, undisturbed)
    assert left_of(command) == []


def test_a_killed_command_leaves_no_process_and_is_gone_on_with(start, run, undisturbed):
    command = start(*TRAIN)
    at_step_60(command, run)
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.wait() == -9
    assert left_of(command) == []
    again = start(*TRAIN)
    assert again.wait() == 0, again.err
    assert "resuming from the checkpoint of step" in again.err
    assert is_the_curve(run, undisturbed)


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_go_on(start, run, undisturbed):
    command = start(*TRAIN)
    at_step_60(command, run)
    command.press_ctrl_c()
    assert command.wait() == 130
    step = run.checkpoint_steps()[-1]
    assert step >= 60
    assert command.out == ""
    assert f"error: stopped; the checkpoint of step {step} is kept" in command.err
    assert command.err.count("error:") == command.err.count("hint:") == 1
    assert "Traceback" not in command.err
    assert of(RunEnded, run)[-1].outcome == "stopped"
    assert left_of(command) == []
    again = start(*TRAIN)
    assert again.wait() == 0, again.err
    assert of(AttemptStarted, run)[-1].resumed_step == step
    assert is_the_curve(run, undisturbed)


def test_a_stopped_run_goes_on_in_another_layout(start, run, undisturbed):
    command = start(*TRAIN)
    at_step_60(command, run)
    command.press_ctrl_c()
    assert command.wait() == 130
    sizes = ("parallel.data_parallel.size=1", "parallel.pipeline_parallel.stages=2")
    again = start(*TRAIN, "--set", sizes[0], "--set", sizes[1])
    assert again.wait() == 0, again.err
    assert of(AttemptStarted, run)[-1].layout == "dp1 x tp1 x pp2"
    assert is_the_curve(run, undisturbed)


def test_ctrl_c_with_json_prints_one_object(start, run):
    command = start(*TRAIN, "--json")
    at_step_60(command, run)
    command.press_ctrl_c()
    assert command.wait() == 130
    assert (command.json["exit_code"], command.json["code"]) == (130, "interrupted")
    assert command.json["hint"]


def test_a_second_ctrl_c_ends_ranks_that_cannot_stop(start, run):
    command = start(*TRAIN)
    os.kill(at_step_60(command, run)[1], signal.SIGSTOP)
    command.press_ctrl_c()
    command.until(lambda: "stopping after this step" in command.err)
    command.press_ctrl_c()
    assert command.wait(30) == 130
    assert run.checkpoint_steps()[-1] % 25 == 0
    assert left_of(command) == []


def test_ctrl_c_before_the_first_step_ends_at_once(start, run):
    command = start(*TRAIN)
    command.until(lambda: of(AttemptStarted, run))
    command.press_ctrl_c()
    assert command.wait(60) == 130
    assert command.err.count("error:") == 1
    assert "Traceback" not in command.err
    assert left_of(command) == []


def test_ctrl_c_that_also_ends_a_server_coming_up_is_told_as_ctrl_c(start, run):
    command = start(*TRAIN)
    (server,) = command.until(psutil.Process(command.process.pid).children)
    command.press_ctrl_c()
    with contextlib.suppress(psutil.NoSuchProcess):  # the command may have ended it already
        server.kill()
    assert command.wait(60) == 130
    assert "error: stopped before the first checkpoint" in command.err
    assert left_of(command) == []


def test_the_verb_stop_ends_a_run_with_a_checkpoint(ai_cli, start, run):
    command = start(*TRAIN)
    at_step_60(command, run)
    ran = ai_cli("stop", run.root)
    assert (ran.code, ran.out) == (0, f"asked process {command.process.pid} to stop\n")
    assert command.wait() == 130
    assert run.checkpoint_steps()[-1] >= 60
    assert left_of(command) == []


def test_ranks_lost_too_often_end_the_run_with_a_diagnosis(start, run):
    command = start(*TRAIN, "--set", "train.max_restarts=1")
    os.kill(at_step_60(command, run)[0], signal.SIGKILL)
    os.kill(command.until(lambda: pids(run, attempt=1).get(0)), signal.SIGKILL)
    assert command.wait() == 5
    assert "error: training failed: " in command.err
    assert "rank 0" in command.err.partition("error: ")[2]
    assert f"ai-cli diagnose {run.root.relative_to(run.root.parents[1])}" in command.err
    assert of(RunEnded, run)[-1].outcome == "failed"
    assert of(CheckpointSaved, run)
    assert "Traceback" not in command.err
    assert left_of(command) == []


def test_a_rank_that_meets_broken_data_ends_the_run_without_a_restart(ai_cli, finished):
    (finished.results / "train.json").unlink()
    for folder in (finished.checkpoints, finished.root / "cache"):
        shutil.rmtree(folder)
    for block in finished.root.glob("data/*/train*/*"):
        block.write_bytes(block.read_bytes()[:-1] + b"\x7f")
    ran = ai_cli(*TRAIN)
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.count("error:") == 1
    assert "Traceback" not in ran.err
    assert len(of(AttemptStarted, finished)) == 2
    assert {event.code for event in of(RankFailed, finished)} == {"data"}


def test_a_finding_of_an_earlier_command_is_not_told_again(ai_cli, finished):
    last = [event for event in of(StepDone, finished) if event.rank == 0][-1]
    with finished.writer("rank-0") as writer:
        writer.write(replace(last, loss=float("nan")))
    shutil.rmtree(finished.checkpoint(8))
    ran = ai_cli(*TRAIN)
    assert ran.code == 0, ran.err
    assert "nonfinite" not in ran.err
    assert of(Finding, finished) == []
