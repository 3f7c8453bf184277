import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cnai.core.errors import DataError, RunError
from cnai.core.event_lines import event_line
from cnai.core.events import CheckpointSaved, RunEnded
from cnai.core.runfolder import EventFollower, EventWriter, RunFolder, read_events
from full_disk import tiny_disk

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def saved(step, time=None, path="p"):
    return CheckpointSaved(
        time_unix=float(step if time is None else time), step=step, path=path, size_bytes=1,
        seconds=0.1,
    )  # fmt: skip


def steps(events):
    return [event.step for event in events]


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run")


def test_a_run_is_made_with_all_its_folders(run):
    assert sorted(path.name for path in run.root.iterdir()) == [
        "artifacts", "checkpoints", "events", "logs", "results",
    ]  # fmt: skip


def test_a_run_that_is_there_is_opened(run):
    assert RunFolder.existing(run.root).name == "run"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="no run at") as caught:
        RunFolder.existing(tmp_path)
    assert "ai-cli runs" in caught.value.hint


def test_a_place_that_cannot_be_written_is_refused():
    with pytest.raises(RunError):
        RunFolder.create(Path("/proc/nowhere"))


def test_only_whole_checkpoints_count(run):
    for name in ("step-10", "step-9", ".step-11.partial", "step-x", "step-12.old"):
        (run.checkpoints / name).mkdir()
    assert run.checkpoint_steps() == [9, 10]


def test_names_inside_a_run(run):
    assert run.checkpoint(7).name == "step-7"
    assert run.rank_log(3).name == "rank-3.log"


def test_events_of_all_writers_are_merged_by_time(run):
    with run.writer("rank-0") as a, run.writer("rank-1") as b:
        a.write(saved(1, time=1))
        b.write(saved(2, time=2))
        a.write(saved(3, time=3))
        b.write(saved(4, time=2.5))
    assert steps(read_events(run)) == [1, 2, 4, 3]


def test_a_follower_tells_only_what_is_new(run):
    follower = EventFollower(run)
    with run.writer("agent") as writer:
        writer.write(saved(1))
        assert steps(follower.read()) == [1]
        assert follower.read() == []
        writer.write(saved(2))
        assert steps(follower.read()) == [2]


def test_a_follower_may_come_before_the_run(tmp_path):
    follower = EventFollower(RunFolder(tmp_path / "later"))
    assert follower.read() == []
    with RunFolder.create(tmp_path / "later").writer("agent") as writer:
        writer.write(saved(1))
    assert steps(follower.read()) == [1]


def test_a_line_that_is_still_being_written_is_waited_for(run):
    follower = EventFollower(run)
    line = event_line(saved(1))
    file = run.events / "rank-0.jsonl"
    file.write_bytes(line[:20])
    assert follower.read() == []
    file.write_bytes(line)
    assert steps(follower.read()) == [1]
    assert follower.skipped == 0


def test_a_torn_line_of_a_killed_writer_swallows_nothing(run):
    (run.events / "agent.jsonl").write_bytes(event_line(saved(1)) + event_line(saved(2))[:15])
    with run.writer("agent") as writer:
        writer.write(saved(3))
    follower = EventFollower(run)
    assert steps(follower.read()) == [1, 3]
    assert follower.skipped == 1


def test_unknown_and_damaged_lines_are_counted_and_passed_over(run):
    (run.events / "agent.jsonl").write_bytes(
        b'{"kind": "FromTheFuture", "v": 1}\n\xff\xff\n\n{"kind": "RunEnded", "v": 1}\n'
        + event_line(saved(5))
    )
    follower = EventFollower(run)
    assert steps(follower.read()) == [5]
    assert follower.skipped == 3


def test_a_second_writer_of_another_name_disturbs_nothing(run):
    with run.writer("rank-0") as a, run.writer("rank-1") as b:
        for step in range(50):
            a.write(saved(2 * step))
            b.write(saved(2 * step + 1))
    assert steps(read_events(run)) == list(range(100))


def test_two_writers_of_one_file_still_write_whole_lines(run):
    with run.writer("agent") as a, run.writer("agent") as b:
        for step in range(50):
            (a if step % 2 else b).write(saved(step))
    assert steps(read_events(run)) == list(range(50))


WRITER = """
import itertools, sys
from contextlib import suppress
from pathlib import Path
from cnai.core.events import CheckpointSaved
from cnai.core.runfolder import EventWriter
with EventWriter(Path(sys.argv[1])) as writer:
    for step in itertools.count(int(sys.argv[2])):
        writer.write(CheckpointSaved(
            time_unix=float(step), step=step, path="p" * 2000, size_bytes=1, seconds=0.1))
        print(step, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_had_told(run):
    file = run.events / "rank-0.jsonl"
    begin = 0
    for kills_before in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), str(begin)],
            stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )  # fmt: skip
        told = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        told += [int(line) for line in writer.communicate()[0].split("\n")[:-1]]
        follower = EventFollower(run)
        found = steps(follower.read())
        assert found[: told[-1] + 1] == list(range(told[-1] + 1))
        # A kill may tear the line that was being written, where it crosses a page of the file.
        assert follower.skipped <= kills_before
        begin = found[-1] + 1


def write_many(writer):
    """Write more events than a small disk holds."""
    for step in range(1000):
        writer.write(saved(step, path="p" * 500))


def test_a_full_disk_is_told_and_tears_no_later_line(tmp_path):
    with tiny_disk(tmp_path / "disk") as disk:
        run = RunFolder.create(disk / "run")
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 40_000)
        with run.writer("agent") as writer:
            with pytest.raises(RunError, match="no space left"):
                write_many(writer)
            before = steps(read_events(run))
            ballast.unlink()
            writer.write(RunEnded(time_unix=2000.0, outcome="failed", step=7, seconds=1.0))
        events = read_events(run)
        assert steps(events[:-1]) == before == list(range(len(before)))
        assert isinstance(events[-1], RunEnded)


def test_a_writer_in_a_place_that_cannot_be_written_is_refused():
    with pytest.raises(RunError):
        EventWriter(Path("/proc/nowhere"))


HOLDER = """
import sys
from contextlib import suppress
from pathlib import Path
from contextlib import suppress
from pathlib import Path
from cnai.core.runfolder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(run):
    """Let another process hold the run's lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_run_that_another_process_works_on_is_refused(run, holder):
    with pytest.raises(RunError, match=f"in use by process {holder.pid}") as caught, run.locked():
        pass
    assert f"ai-cli watch {run.root}" in caught.value.hint


def test_the_owner_is_the_process_that_holds_the_lock(run, holder):
    assert run.owner() == holder.pid


def test_a_killed_owner_leaves_the_run_free(run, holder):
    holder.kill()
    holder.wait()
    assert run.owner() is None
    with run.locked():
        assert run.owner() == os.getpid()


def test_a_run_that_nobody_has_locked_has_no_owner(run):
    assert run.owner() is None


def test_a_look_does_not_keep_the_run(run):
    with run.locked():
        pass
    assert [run.owner(), run.owner()] == [None, None]


def test_the_lock_is_given_back_after_an_error(run):
    with pytest.raises(ZeroDivisionError), run.locked():
        raise ZeroDivisionError
    with run.locked():
        pass


@pytest.fixture
def looker(run):
    """Hold the shared lock of somebody who looks whether the run is in use."""
    with run.locked():
        pass
    handle = os.open(run.root / ".lock", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    yield handle
    with suppress(OSError):
        os.close(handle)


def test_two_who_look_at_once_do_not_take_each_other_for_the_owner(run, looker):
    assert run.owner() is None


def test_a_run_waits_for_one_who_only_looks(run, looker, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: os.close(looker))
    with run.locked():
        assert run.owner() == os.getpid()
