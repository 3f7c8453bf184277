"""What is seen of a run: once, as JSON, live, and in lines."""

import io
import math
import os
import signal
import threading

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from cnai.cli.output import Output
from cnai.cli.screen import (
    Lines,
    LiveView,
    Warnings,
    fraction_picture,
    sparkline,
    training_line,
    training_picture,
)
from cnai.core.events import AttemptStarted, RunEnded, StepDone
from cnai.core.runfolder import RunFolder
from cnai.flows.listener import Silence
from cnai.flows.monitor import follow_run
from cnai.flows.stopping import sigterm_interrupts
from cnai.monitor import fold

slow, dist = pytest.mark.slow, pytest.mark.dist


def step(number, rank=0, loss=None):
    return StepDone(
        time_unix=100.0 + number,
        rank=rank,
        attempt=0,
        step=number,
        loss=6 - number if loss is None else loss,
        grad_norm=1.5,
        update_ratio=0.002 if rank == 0 else None,
        learning_rate=1e-3,
        tokens=1000,
        step_seconds=0.5,
        data_wait_seconds=0.01,
    )


STARTED = AttemptStarted(
    time_unix=100.0, attempt=0, ranks=2, steps=10, plan_digest="x", layout="dp2 x tp1 x pp1",
    resumed_step=0,
)  # fmt: skip
ENDED = RunEnded(time_unix=200.0, outcome="done", step=10, seconds=100.0)


def progress(steps=4, ranks=2):
    events = [step(number, rank) for number in range(1, steps + 1) for rank in range(ranks)]
    return fold([STARTED, *events], run="tiny", now_unix=110.0)


def drawn(picture):
    console = Console(file=io.StringIO(), width=90, color_system=None)
    console.print(picture)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_picture_of_a_training_shows_step_loss_speed_and_ranks():
    assert drawn(training_picture(progress())) == snapshot(
        [
            "state training   step 4/10             left 3.0 s",
            "loss 2.0000      gradient norm 1.500   2.0 k tokens/s",
            "loss █▆▃▁",
            "  rank    step    step time    data wait    update/weight         seen",
            "     0       4       500 ms        10 ms          2.0e-03    6.0 s ago",
            "     1       4       500 ms        10 ms                -    6.0 s ago",
        ]
    )


def test_the_picture_of_a_training_without_a_step_has_no_numbers():
    assert drawn(training_picture(progress(steps=0))) == snapshot(
        [
            "state starting   step 0/10         left -",
            "loss -           gradient norm -   0 tokens/s",
            "",
            "  rank    step    step time    data wait    update/weight    seen",
        ]
    )


def test_many_ranks_are_cut_off_with_their_number():
    lines = drawn(training_picture(progress(ranks=40)))
    assert lines[-1] == "and 24 more ranks"
    assert len(lines) == 2 + 1 + 1 + 16 + 1


def test_a_fraction_is_drawn_as_a_bar():
    (line,) = drawn(fraction_picture("tokens", 0.5))
    assert line.split()[0] == "tokens"


def test_one_line_tells_how_training_stands():
    assert training_line(progress()) == snapshot(
        "train: step 4/10  loss 2.000  2.0 k tokens/s  ranks 2  3.0 s left"
    )


def test_one_line_tells_that_there_is_no_step_yet():
    assert training_line(progress(steps=0)) == snapshot("train: starting, no step yet")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], ""), ([1.0], "loss ▁"), ([3.0, 2.0, 1.0], "loss █▅▁"), ([2.0, 2.0], "loss ▁▁")],
)
def test_a_series_is_drawn_as_blocks(values, expected):
    assert sparkline(values) == expected


def test_a_long_series_fits_the_line():
    drawing = sparkline([float(x) for x in range(1000)])
    assert 50 <= len(drawing.removeprefix("loss ")) <= 60


@pytest.mark.parametrize("length", [60, 61, 62, 100, 121])
def test_a_series_ends_in_its_newest_value(length):
    assert sparkline([*([0.0] * (length - 1)), 1.0]).endswith("▁█")


def test_a_series_with_a_diverged_loss_can_be_drawn():
    assert sparkline([1.0, math.nan, 2.0, math.inf]) == "loss ▁x█x"
    assert sparkline([math.nan]) == "loss x"


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def lines(capsys):
    """Lines on a clock that stands still, and what they wrote."""
    clock = Clock()
    return Lines(Output(), clock), clock, lambda: capsys.readouterr().err


def test_stages_and_notes_are_told_at_once(lines):
    screen, _, told = lines
    screen.stage("data")
    screen.stage("train", skipped=True)
    screen.note("a note")
    screen.warn("a warning")
    assert told() == "data: started\ntrain: done before\na note\nwarning: a warning\n"


def test_what_goes_on_is_told_every_ten_seconds(lines):
    screen, clock, told = lines
    for clock.seconds in (0.0, 5.0, 9.9, 10.0, 15.0, 19.0, 20.0):
        screen.training(progress())
    assert len(told().splitlines()) == 2


def test_fractions_are_told_every_ten_seconds(lines):
    screen, clock, told = lines
    for clock.seconds in range(25):
        screen.fraction("train", clock.seconds / 25)
    assert told() == "train: 40%\ntrain: 80%\n"


def test_a_new_stage_starts_the_ten_seconds_again(lines):
    screen, clock, told = lines
    clock.seconds = 8.0
    screen.stage("train")
    clock.seconds = 12.0
    screen.training(progress())
    assert told() == "train: started\n"


def test_the_quiet_screen_shows_warnings_alone(capsys):
    screen = Warnings(Output())
    screen.stage("data")
    screen.note("a note")
    screen.fraction("data", 0.5)
    screen.training(progress())
    screen.warn("a warning")
    assert capsys.readouterr().err == "warning: a warning\n"


def test_the_live_view_leaves_the_last_picture_standing(capsys):
    view = LiveView(Output())
    view.stage("train")
    view.training(progress(steps=1))
    view.note("a [bold] note")
    view.training(progress(steps=4))
    view.close()
    view.close()
    err = capsys.readouterr().err
    assert err.startswith("train ...\n")
    assert "a [bold] note" in err
    assert "step 4/10" in err


@pytest.fixture
def run(place):
    """A run of which only events are there."""
    run = RunFolder.create(place / "runs" / "tiny")
    with run.writer("agent") as agent, run.writer("rank-0") as rank:
        agent.write(STARTED)
        rank.write(step(1))
        rank.write(step(2))
    return run


def test_a_run_is_looked_at_once(ai_cli, run):
    ran = ai_cli("watch", run.root, "--once")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("train: step 2/10  loss 4.000")


def test_a_run_is_looked_at_as_json(ai_cli, run):
    ran = ai_cli("watch", run.root, "--json")
    assert (ran.json["state"], ran.json["step"], ran.json["steps"]) == ("training", 2, 10)


def test_watching_a_run_that_nobody_works_on_ends(ai_cli, run):
    ran = ai_cli("watch", run.root)
    assert ran.code == 0
    assert "step 2/10" in ran.out


class Passing:
    """A clock on which things happen while somebody waits."""

    def __init__(self, *happenings):
        self._coming = list(happenings)

    def now(self):
        return 300.0

    def monotonic(self):
        return 0.0

    def sleep(self, seconds):
        self._coming.pop(0)()


def test_a_run_is_followed_until_it_ends(run):
    with run.writer("agent") as agent, run.writer("rank-0") as rank, run.locked():
        clock = Passing(lambda: rank.write(step(3)), lambda: agent.write(ENDED))
        last = follow_run(run, Silence(), clock)
    assert (last.state, last.step) == ("done", 3)


def test_following_ends_with_its_process(run):
    lock = run.locked()
    lock.__enter__()
    last = follow_run(run, Silence(), Passing(lambda: lock.__exit__(None, None, None)))
    assert (last.state, last.step) == ("training", 2)


def test_a_run_that_is_not_running_cannot_be_stopped(ai_cli, run):
    ran = ai_cli("stop", run.root)
    assert (ran.code, ran.out) == (0, f"run {run.root} is not running\n")
    assert ai_cli("stop", run.root, "--json").json["process"] is None


def test_the_last_lines_of_each_log_are_printed_with_their_rank(ai_cli, run):
    for rank in range(2):
        run.rank_log(rank).write_text("".join(f"line {n} of {rank}\n" for n in range(9)))
    assert ai_cli("logs", run.root, "--lines", "2").out == (
        "[rank-0] line 7 of 0\n[rank-0] line 8 of 0\n[rank-1] line 7 of 1\n[rank-1] line 8 of 1\n"
    )
    assert ai_cli("logs", run.root, "--rank", "1", "--lines", "1").out == "[rank-1] line 8 of 1\n"
    assert ai_cli("logs", run.root, "--lines", "1", "--json").json["logs"]["rank-0"] == [
        "line 8 of 0"
    ]


def test_a_rank_without_a_log_is_told(ai_cli, run):
    ran = ai_cli("logs", run.root, "--rank", "7")
    assert (ran.code, "rank 7 of run `tiny` has no log" in ran.err) == (4, True)


def test_a_log_of_one_endless_line_is_printed_from_its_end(ai_cli, run):
    run.rank_log(0).write_text("x" * 100_000 + "end")
    assert ai_cli("logs", run.root).out.endswith("end\n")


def test_sigterm_ends_work_as_ctrl_c_does():
    with pytest.raises(KeyboardInterrupt), sigterm_interrupts():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_signals_are_left_alone_outside_the_main_thread():
    done = []

    def work():
        with sigterm_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


@slow
@dist
def test_a_finished_run_is_shown_listed_and_healthy(ai_cli, finished):
    assert ai_cli("watch", "runs/tiny", "--json").json["state"] == "done"
    assert ai_cli("watch", "runs/tiny").code == 0
    (row,) = ai_cli("runs", "--json").json["runs"]
    assert (row["status"], row["step"]) == ("done", 8)
    assert ai_cli("diagnose", "runs/tiny").code == 0
