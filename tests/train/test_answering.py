"""Ranks answer where they stand, also when their main thread cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cnai.diagnose.stacks import main_thread, read_stacks
from cnai.train.questions import COLLECTIVES_SIGNAL, STACKS_SIGNAL, collectives_of, stacks_of
from cnai.train.standing import page_of, read_page

pytestmark = [pytest.mark.slow, pytest.mark.dist]
PROGRAM = """
import sys
from pathlib import Path
import fault_case
from cnai.train.answering import answering
with answering(Path(sys.argv[1]), 0, 7) as page:
    page.enter("data")
    {body}
"""


@pytest.fixture
def start(tmp_path):
    """Start a process that does something while it answers."""
    here = Path(__file__).parents[2]
    started = []

    def begin(body, phase="data"):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=body), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": f"{here / 'src'}:{here / 'tests'}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        until(lambda: (page := read_page(page_of(tmp_path, 0))) and page.phase == phase)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def until(ready, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def asked(process, folder):
    process.send_signal(STACKS_SIGNAL)
    process.send_signal(COLLECTIVES_SIGNAL)
    path = stacks_of(folder, 0)
    text = until(lambda: "fault_case" in (said := path.read_text()) and said)
    return read_stacks(text)[main_thread(text)]


def test_a_rank_that_waits_tells_its_stack_and_its_collectives(start, tmp_path):
    process = start("fault_case.wait_for_a_store()")
    assert any("wait_for_a_store" in frame for frame in asked(process, tmp_path))
    told = until(lambda: collectives_of(tmp_path, 0).is_file()) and json.loads(
        collectives_of(tmp_path, 0).read_text()
    )
    assert told == {"enqueued": {}, "collective": None, "odd": False}
    assert read_page(page_of(tmp_path, 0)).step == 7


def test_a_rank_whose_machine_code_keeps_the_interpreter_tells_its_stack(start, tmp_path):
    process = start("fault_case.hang_in_machine_code()")
    assert "hang_in_machine_code" in asked(process, tmp_path)[0]
    assert not collectives_of(tmp_path, 0).exists()


def test_an_error_leaves_what_is_known_of_the_collectives(start, tmp_path):
    process = start("fault_case.miss_a_key()")
    assert "KeyError" in process.communicate(timeout=60)[1]
    assert collectives_of(tmp_path, 0).is_file()


def test_questions_after_the_end_do_not_kill(start, tmp_path):
    process = start("pass\nimport time\ntime.sleep(60)", phase="done")
    process.send_signal(STACKS_SIGNAL)
    process.send_signal(COLLECTIVES_SIGNAL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)


def test_a_rank_that_was_stopped_still_has_its_page(start, tmp_path):
    process = start("fault_case.wait_for_a_store()")
    process.send_signal(signal.SIGSTOP)
    assert read_page(page_of(tmp_path, 0)).pid == process.pid
