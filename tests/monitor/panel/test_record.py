import math

import pytest

from cnai.core.events import Finding
from cnai.core.runfolder import RunFolder
from cnai.monitor import fold
from cnai.monitor.panel.pictures import POINTS, at_step, curve, mark, news, waits, whole
from cnai.monitor.panel.record import RunRecord
from monitor_case import FakeClock, ended, evaluated, lost, saved, started, step


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "demo")


def write(run, *events, name="rank-0"):
    with run.writer(name) as writer:
        for event in events:
            writer.write(event)


@pytest.fixture
def record(run):
    return RunRecord(run, FakeClock())


def read(record):
    record._clock.time += 1
    record.refresh()


def found(at=5.0, message="m"):
    return Finding(time_unix=at, detector="loss_spike", severity="warning", message=message, step=4)


def test_an_empty_run_has_a_picture(record):
    read(record)
    plain = whole(record)
    assert plain["state"] == "starting"
    assert plain["curves"]["loss"] == {"x": [], "y": []}
    assert at_step(record, 1) == {}


def test_the_picture_agrees_with_the_fold(run, record):
    events = [started(), *[step(n) for n in range(1, 40)], saved(39, at=39.5), ended("done")]
    write(run, *events)
    read(record)
    plain, told = whole(record), fold(events, run="demo", now_unix=0.0)
    assert plain["step"] == told.step
    assert plain["goodput"]["share"] == told.goodput.share
    assert plain["curves"]["loss"]["y"][-1] == told.loss


def test_a_long_run_is_drawn_in_few_points(run, record):
    write(run, started(), *[step(n) for n in range(1, 3 * POINTS)])
    read(record)
    assert len(whole(record)["curves"]["loss"]["x"]) <= POINTS


def test_a_loss_that_is_no_number_is_a_gap(run, record):
    write(run, started(), step(1), step(2, loss=math.nan))
    read(record)
    assert whole(record)["curves"]["loss"]["y"] == [4.99, None]


def test_news_are_the_steps_since_the_mark(run, record):
    write(run, started(), step(1), step(2))
    read(record)
    seen = mark(record)
    write(run, step(3), found())
    read(record)
    fresh = news(record, seen)
    assert fresh["curves"]["loss"]["x"] == [3]
    assert [one["message"] for one in fresh["findings"]] == ["m"]


def test_when_nothing_came_the_news_are_empty(run, record):
    write(run, started(), step(1), found(at=1.0))
    read(record)
    fresh = news(record, mark(record))
    assert fresh["curves"]["loss"]["x"] == []
    assert fresh["findings"] == []


def test_the_first_step_after_an_empty_picture_is_news(run, record):
    read(record)
    seen = mark(record)
    write(run, started(), step(1))
    read(record)
    assert news(record, seen)["curves"]["loss"]["x"] == [1]


def test_a_resume_asks_for_the_whole(run, record):
    write(run, started(), step(1), step(2), step(3))
    read(record)
    seen = mark(record)
    write(run, started(1, resumed=1, at=3.5), name="agent")
    write(run, step(2, attempt=1, time_unix=4.0, loss=1.0))
    read(record)
    assert news(record, seen) is None
    assert whole(record)["curves"]["loss"] == {"x": [1, 2], "y": [4.99, 1.0]}


def test_a_step_is_as_slow_as_its_slowest_rank(run, record):
    write(run, started(), step(1, step_seconds=0.5))
    write(run, step(1, rank=1, step_seconds=2.0, data_wait_seconds=1.5), name="rank-1")
    read(record)
    curves = whole(record)["curves"]
    assert curves["step_seconds"]["y"] == [2.0]
    assert curves["slowest_wait"]["y"] == [1.5]
    assert curves["tokens_per_second"]["y"] == [500.0]


def test_the_past_is_shown_as_it_was(run, record):
    write(run, started(), *[step(n) for n in range(1, 11)], saved(4, at=4.5), saved(9, at=9.5))
    write(run, evaluated(3, 4.7), evaluated(8, 4.1), name="agent")
    read(record)
    then = at_step(record, 5)
    assert (then["step"], then["checkpoint_step"], then["validation_loss"]) == (5, 4, 4.7)
    assert then["loss"] == pytest.approx(4.95)
    assert then["ranks"] == [
        {"rank": 0, "step_seconds": 0.5, "data_wait_seconds": pytest.approx(0.1)}
    ]


def test_the_account_of_the_past_adds_up(run, record):
    write(run, started(), *[step(n) for n in range(1, 11)])
    read(record)
    account = at_step(record, 6)["goodput"]
    assert sum(account["parts"].values()) == pytest.approx(account["elapsed"])
    assert account["elapsed"] == pytest.approx(6.0)


def test_validation_is_a_curve(run, record):
    write(run, started(), step(1), evaluated(1, 4.5))
    read(record)
    assert curve(record, "validation", 10) == {"x": [1], "y": [4.5]}


def test_incidents_are_told_in_words(run, record):
    write(run, started(), lost(), name="agent")
    read(record)
    assert [one.what for one in record.incidents] == [
        "2 ranks started as dp2 x tp1 x pp1",
        "rank 1 lost, exit code -9",
    ]


def test_of_very_many_ranks_the_worst_are_shown(run, record):
    write(
        run, started(ranks=300), *[step(1, rank=n, data_wait_seconds=n / 1e3) for n in range(300)]
    )
    read(record)
    plain = whole(record)
    assert plain["ranks_total"] == 300
    assert [row["rank"] for row in plain["ranks"]] == list(range(44, 300))


def test_waits_are_a_row_for_each_rank(run, record):
    write(run, started(), step(1), step(1, rank=1, data_wait_seconds=0.4))
    read(record)
    assert waits(record, 100) == {"steps": 1, "rows": [[0.1], [0.4]], "last": 1}


def test_a_damaged_line_is_passed_over(run, record):
    write(run, started(), step(1))
    with (run.events / "rank-0.jsonl").open("ab") as file:
        file.write(b'\x00\xff{"kind": \n{"kind":"StepDone","v":1}\n')
    write(run, step(2))
    read(record)
    assert record.table.last_step == 2


def test_two_looks_at_once_read_once(run, record):
    write(run, started(), step(1))
    record.refresh()
    write(run, step(2))
    record.refresh()
    assert record.table.last_step == 1
    read(record)
    assert record.table.last_step == 2
