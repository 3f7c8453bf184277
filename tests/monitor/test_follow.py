from cnai.core.event_lines import event_line
from cnai.core.runfolder import RunFolder
from cnai.monitor import RunFollower, RunState, follow
from monitor_case import FakeClock, ended, started, step


def write(run, *events, name="rank-0"):
    with run.writer(name) as writer:
        for event in events:
            writer.write(event)


def test_a_run_is_followed_to_its_end(tmp_path):
    run, clock = RunFolder.create(tmp_path / "r"), FakeClock()
    clock.on_sleep = [
        lambda: write(run, started(), name="agent"),
        lambda: write(run, step(1)),
        lambda: write(run, ended("done"), name="agent"),
    ]
    seen = [(one.state.value, one.step) for one in follow(run, clock=clock)]
    assert seen == [("starting", 0), ("starting", 0), ("training", 1), ("done", 1)]


def test_a_run_that_is_over_is_told_once(tmp_path):
    run = RunFolder.create(tmp_path / "r")
    write(run, step(1), ended("failed"))
    assert [one.state for one in follow(run, clock=FakeClock())] == [RunState.FAILED]


def test_time_passes_by_the_clock_alone(tmp_path):
    run, clock = RunFolder.create(tmp_path / "r"), FakeClock(100.0)
    write(run, step(1, time_unix=90.0))
    follower = RunFollower(run, clock)
    assert follower.progress().ranks[0].age_seconds == 10.0
    clock.sleep(5)
    assert follower.progress().ranks[0].age_seconds == 15.0


def test_a_half_written_line_waits_for_its_end(tmp_path):
    run = RunFolder.create(tmp_path / "r")
    line = event_line(step(1))
    path = run.events / "rank-0.jsonl"
    path.write_bytes(line[:20])
    follower = RunFollower(run, FakeClock())
    assert follower.progress().step == 0
    path.write_bytes(line)
    assert follower.progress().step == 1


def test_new_events_are_handed_over_once(tmp_path):
    run = RunFolder.create(tmp_path / "r")
    write(run, step(1))
    follower = RunFollower(run, FakeClock())
    assert [event.step for event in follower.read()] == [1]
    assert follower.read() == []


def test_a_run_without_a_folder_has_not_started(tmp_path):
    progress = RunFollower(RunFolder(tmp_path / "none"), FakeClock()).progress()
    assert progress.state is RunState.STARTING
