"""A run is one folder of plain files; `ls` is the debugger.

    spec.yaml            what was asked
    plan.json            the layout that was built
    plans/attempt-N.json the layout that each attempt was built in
    scale.json           sizes that `ai-cli scale` asked for (absent when it was never used)
    events/rank-N.jsonl  what each rank did       events/agent.jsonl  what its supervisor did
    records/layers.vec   what was measured in every layer, a vector of numbers a step
    logs/rank-N.log      what each rank printed
    standing/            where each rank of the newest attempt stands: a page, stacks, collectives
    checkpoints/step-N/  complete checkpoints (a name that starts with a dot is unfinished)
    artifacts/NAME/      exported and compressed models
    results/STAGE.json   what each finished stage of the chain found

Each file of events has exactly one writer, which only appends whole lines; readers merge the files
and pass over a torn last line. Nothing is shared between processes through one file handle.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from cnai.core.errors import DataError, RunError
from cnai.core.event_lines import event_line, parse_event
from cnai.core.events import Event
from cnai.core.files import saving

ATTEMPT_MARK = "=== attempt "
"""Begins the line that an attempt writes first into each log; what stands before is older."""

_STEP = re.compile(r"step-([0-9]+)")


class RunFolder:
    """Names inside a run folder. Holds no handle and no state."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def create(cls, root: Path) -> RunFolder:
        """Make the folder and its subfolders.

        Raises:
            RunError: The place cannot be written.
        """
        run = cls(root)
        with saving(root):
            for folder in (run.events, run.logs, run.checkpoints, run.artifacts, run.results):
                folder.mkdir(parents=True, exist_ok=True)
        return run

    @classmethod
    def existing(cls, root: Path) -> RunFolder:
        """Open a folder that a run has made.

        Raises:
            DataError: There is no run.
        """
        run = cls(root)
        if not run.events.is_dir():
            raise DataError(
                f"no run at `{root}`",
                where=str(root),
                hint="list the runs with `ai-cli runs`, or start one with `ai-cli run SPEC`",
            )
        return run

    @property
    def name(self) -> str:
        """The run's name."""
        return self.root.name

    @property
    def spec_file(self) -> Path:
        """The spec as it was run."""
        return self.root / "spec.yaml"

    @property
    def plan_file(self) -> Path:
        """The plan that the ranks built."""
        return self.root / "plan.json"

    @property
    def scale_file(self) -> Path:
        """The sizes that `ai-cli scale` asked for."""
        return self.root / "scale.json"

    def attempt_plan(self, attempt: int) -> Path:
        """The plan that the ranks of an attempt built."""
        return self.root / "plans" / f"attempt-{attempt}.json"

    @property
    def events(self) -> Path:
        """Folder of the event files."""
        return self.root / "events"

    @property
    def layers_file(self) -> Path:
        """What was measured in every layer, step by step (`cnai.core.vectors`)."""
        return self.root / "records" / "layers.vec"

    @property
    def logs(self) -> Path:
        """Folder of the logs."""
        return self.root / "logs"

    @property
    def standing(self) -> Path:
        """Folder in which the ranks of the newest attempt keep where they stand."""
        return self.root / "standing"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.root / "checkpoints"

    @property
    def artifacts(self) -> Path:
        """Folder of the models."""
        return self.root / "artifacts"

    @property
    def results(self) -> Path:
        """Folder of the stages' results."""
        return self.root / "results"

    def rank_log(self, rank: int) -> Path:
        """Log of a rank."""
        return self.logs / f"rank-{rank}.log"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of a step."""
        return self.checkpoints / f"step-{step}"

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a complete checkpoint, oldest first."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_STEP.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def writer(self, name: str) -> EventWriter:
        """Open the event file of one writer, `rank-3` or `agent`."""
        return EventWriter(self.events / f"{name}.jsonl")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the folder for this process.

        Raises:
            RunError: Another process works on the run.
        """
        path = self.root / ".lock"
        with saving(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                _take(handle)
            except BlockingIOError as error:
                owner = os.pread(handle, 20, 0).decode(errors="replace").strip() or "?"
                raise RunError(
                    f"run `{self.name}` is in use by process {owner}",
                    where=str(self.root),
                    hint=f"watch it with `ai-cli watch {self.root}`, stop it with "
                    f"`ai-cli stop {self.root}`, or give this one another name",
                ) from error
            with saving(path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def owner(self) -> int | None:
        """Return the process that works on the run now, None when there is none.

        Asks with a shared lock, so that two who look at once do not take each other for the owner.
        """
        path = self.root / ".lock"
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(handle, 20, 0).decode(errors="replace").strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(handle)
        return None


def _take(handle: int, tries: int = 5) -> None:
    """Lock a file, waiting a moment for those who only look whether it is locked."""
    for _ in range(tries - 1):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class EventWriter:
    """Appends whole lines to one file that nobody else writes.

    A line is handed to the operating system in one write call, so a process that is killed loses
    at most the line it was writing. A torn last line, left by a killed predecessor or by a full
    disk, is closed with a newline first, so that it cannot swallow the next line. The threads of
    its process may share it.
    """

    def __init__(self, path: Path) -> None:
        with saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            size = os.fstat(self._handle).st_size
            self._torn = bool(size) and os.pread(self._handle, 1, size - 1) != b"\n"
        self.path = path
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Append one event.

        Raises:
            RunError: The disk is full or the file cannot be written.
        """
        with saving(self.path), self._lock:
            line = b"\n" * self._torn + event_line(event)
            self._torn = True
            while line:
                line = line[os.write(self._handle, line) :]
            self._torn = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class EventFollower:
    """Reads the event files of a run from where the last read ended.

    A line without its newline is left for the next read: its writer may still be at it. A line
    that is whole but unreadable is counted in `skipped` and passed over.
    """

    def __init__(self, run: RunFolder) -> None:
        self._folder = run.events
        self._offsets: dict[Path, int] = {}
        self.skipped = 0

    def read(self) -> list[Event]:
        """Return the events that came since the last call, ordered by time."""
        files = sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else []
        return list(heapq.merge(*(self._read(file) for file in files), key=attrgetter("time_unix")))

    def _read(self, file: Path) -> list[Event]:
        start = self._offsets.get(file, 0)
        with file.open("rb") as handle:
            handle.seek(start)
            content = handle.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[file] = start + len(whole)
        lines = [line for line in whole.split(b"\n") if line]
        events = [event for line in lines if (event := parse_event(line, where=str(file)))]
        self.skipped += len(lines) - len(events)
        return sorted(events, key=attrgetter("time_unix"))


def read_events(run: RunFolder) -> list[Event]:
    """Return all events of a run so far, ordered by time."""
    return EventFollower(run).read()
