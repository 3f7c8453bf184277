import io
import sys

import pytest

from cnai.cli.output import Output
from cnai.cli.progress import Progress


class StillClock:
    """Time that moves only when the test says so."""

    def __init__(self):
        self.time = 100.0

    def monotonic(self):
        return self.time

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def clock():
    return StillClock()


def test_a_log_gets_a_line_every_ten_seconds(clock, capsys):
    with Progress(Output(), "step", 40, clock=clock) as progress:
        for done in range(1, 31):
            clock.sleep(1)
            progress.update(done, f"loss {done}")
    assert capsys.readouterr().err.splitlines() == [
        "step 10/40, loss 10, 30.0 s left",
        "step 20/40, loss 20, 20.0 s left",
        "step 30/40, loss 30, 10.0 s left",
    ]


def test_work_without_an_end_tells_no_rest(clock, capsys):
    with Progress(Output(), "files", clock=clock) as progress:
        clock.sleep(11)
        progress.update(7)
    assert capsys.readouterr().err == "files 7\n"


def test_short_work_is_not_mentioned(clock, capsys):
    with Progress(Output(), "step", 2, clock=clock) as progress:
        progress.update(1)
    assert capsys.readouterr() == ("", "")


def test_quiet_work_is_not_mentioned(clock, capsys):
    out = Output()
    out.quiet = True
    with Progress(out, "step", 2, clock=clock) as progress:
        clock.sleep(60)
        progress.update(1)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("seconds", "drawn"), [(1.0, False), (3.0, True)])
def test_a_terminal_gets_a_bar_after_two_seconds(clock, monkeypatch, seconds, drawn):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(Output(), "step", 10, clock=clock) as progress:
        clock.sleep(seconds)
        progress.update(5, "loss 1")
    assert ("5/10" in sys.stderr.getvalue()) is drawn
