"""The panel as a process: beside a training, and by itself."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from cnai.core.events import AttemptStarted
from cnai.core.runfolder import RunFolder
from cnai.flows.listener import Silence
from cnai.flows.panel import panel_beside

pytestmark = [pytest.mark.slow, pytest.mark.dist]

_SECONDS = 60.0
_TRAINER = """
import sys, time
from pathlib import Path
from cnai.core.runfolder import RunFolder
from cnai.flows.listener import Silence
from cnai.flows.panel import panel_beside
class Loud(Silence):
    def note(self, text): print(text, flush=True)
with panel_beside(RunFolder(Path(sys.argv[1])), Loud(), wanted=True):
    time.sleep(600)
"""


class Notes(Silence):
    def __init__(self):
        self.told = []

    def note(self, text):
        self.told.append(text)


def until(condition):
    end = time.monotonic() + _SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def address(text):
    found = re.search(r"http://127\.0\.0\.1:\d+/", text)
    return found and found[0]


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=10).status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def run(place):
    folder = RunFolder.create(place / "runs" / "demo")
    with folder.writer("agent") as writer:
        writer.write(
            AttemptStarted(
                time_unix=1.0, attempt=0, ranks=1, steps=9, plan_digest="d", layout="dp1",
                resumed_step=0,
            )
        )  # fmt: skip
    return folder


def panels():
    mine = psutil.Process().children()
    return [one for one in mine if "monitor" in one.cmdline()]


def test_a_panel_answers_while_the_block_runs_and_no_longer(run):
    notes = Notes()
    with panel_beside(run, notes, wanted=True):
        url = until(lambda: address(" ".join(notes.told)))
        assert answers(url)
        assert answers(f"{url}metrics")
    assert not answers(url)
    assert panels() == []


def test_a_panel_that_is_killed_does_not_stop_the_block(run):
    notes = Notes()
    with panel_beside(run, notes, wanted=True):
        until(lambda: address(" ".join(notes.told)))
        for one in panels():
            one.kill()
        done = True
    assert done


def test_a_panel_that_cannot_start_is_told_and_the_block_runs(place):
    notes = Notes()
    with panel_beside(RunFolder(place / "nothing"), notes, wanted=True):
        until(lambda: any("no run at" in line for line in notes.told))


def test_no_panel_is_started_unasked(run):
    with panel_beside(run, Silence(), wanted=False):
        assert panels() == []


def test_a_panel_ends_when_its_training_is_killed(run):
    trainer = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, str(run.root)], stdout=subprocess.PIPE, text=True
    )
    with trainer:
        url = address(trainer.stdout.readline())
        assert answers(url)
        trainer.kill()
        until(lambda: not answers(url))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_though_a_page_is_open(run, number):
    command = [sys.executable, "-m", "cnai", "monitor", str(run.root), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        url = address(process.stderr.readline())
        with urllib.request.urlopen(f"{url}api/live", timeout=10) as stream:
            assert stream.readline() == b"event: whole\n"
            os.kill(process.pid, number)
            assert process.wait(_SECONDS) == 0


def test_other_machines_are_kept_out_without_a_token(ai_cli, run, monkeypatch):
    monkeypatch.delenv("CNAI_MONITOR_TOKEN", raising=False)
    result = ai_cli("monitor", run.root, "--host", "0.0.0.0", "--port", "0")
    assert result.code != 0
    assert "CNAI_MONITOR_TOKEN" in result.err


def test_a_training_with_a_panel_trains(ai_cli, place):
    result = ai_cli("train", "run.yaml", "-y", "--monitor", "--set", "train.steps=4")
    assert result.code == 0
    assert panels() == []
