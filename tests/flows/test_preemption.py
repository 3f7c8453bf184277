"""A notice that the machine goes away leaves time for a checkpoint, and no longer."""

import os
import re
import signal
import time

import psutil
import pytest

from chain_case import left_of, pids, reached, run_in, write_spec
from cnai.core.events import AttemptStarted, RankLost, RunEnded
from cnai.core.runfolder import read_events
from cnai.train.manifest import verify_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.dist]
TRAIN = ("train", "run.yaml", "-y")


@pytest.fixture
def run(place):
    write_spec(place, {"train.steps": 10_000, "checkpoint.every_steps": 10_000})
    return run_in(place)


def of(kind, run):
    return [event for event in read_events(run) if isinstance(event, kind)]


def server_of(command):
    (server,) = psutil.Process(command.process.pid).children()
    return server.pid


def command_of(command):
    return command.process.pid


@pytest.mark.parametrize(
    "whom",
    [
        pytest.param(command_of, id="the command"),
        pytest.param(server_of, id="the server of the ranks"),
        pytest.param(lambda command: pids_of(command)[1], id="one rank"),
    ],
)
def test_sigterm_saves_a_checkpoint_and_ends(start, run, whom):
    command = start(*TRAIN)
    command.run = run
    command.until(lambda: reached(run, 5))
    os.kill(whom(command), signal.SIGTERM)
    assert command.wait() == 130, command.err
    (step,) = run.checkpoint_steps()
    assert step >= 5
    verify_checkpoint(run.checkpoint(step))
    assert f"the checkpoint of step {step} is kept" in command.err
    assert [event.outcome for event in of(RunEnded, run)] == ["stopped"]
    assert len(of(AttemptStarted, run)) == 1
    assert of(RankLost, run) == []
    assert left_of(command) == []


def pids_of(command):
    return pids(command.run)


def test_ranks_that_cannot_stop_are_ended_when_the_grace_is_over(start, run):
    command = start(*TRAIN, "--set", "checkpoint.grace_seconds=1.5")
    command.until(lambda: reached(run, 5))
    os.kill(pids(run)[1], signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(command.process.pid, signal.SIGTERM)
    assert command.wait(60) == 130
    assert time.monotonic() - begin > 1.5
    assert re.search("did not stop within 1.5 s", command.err)
    assert run.checkpoint_steps() == []
    assert left_of(command) == []


def test_a_notice_while_the_ranks_start_ends_the_run(start, run):
    command = start(*TRAIN)
    command.until(lambda: of(AttemptStarted, run))
    command.until(lambda: (run.rank_log(1)).is_file())
    os.kill(server_of(command), signal.SIGTERM)
    assert command.wait(60) == 130, command.err
    assert len(of(AttemptStarted, run)) == 1
    assert left_of(command) == []
