"""`ai-cli logs`: the ends of the logs of a run, and what the ranks print while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cnai.core.clock import Clock, SystemClock
from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.flows.stopping import stop_wishes

_LINE_BYTES = 400
_CHUNK_BYTES = 1 << 16
_POLL_SECONDS = 0.25


def last_lines(run: RunFolder, *, rank: int | None, lines: int) -> dict[str, list[str]]:
    """Return the last lines of each log by its name, reading no more than is shown.

    Raises:
        DataError: The rank has no log.
    """
    files = sorted(run.logs.glob("*.log")) if rank is None else [run.rank_log(rank)]
    for file in files:
        if not file.is_file():
            raise DataError(
                f"rank {rank} of run `{run.name}` has no log",
                where=str(file),
                hint=f"list the logs with `ls {run.logs}`",
            )
    return {file.stem: tail(file, lines) for file in files}


def follow_logs(
    run: RunFolder, *, rank: int | None, clock: Clock | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the name of a log and a line as it is written, until the run ends or Ctrl-C.

    However much the ranks print, no more than 64 KiB of each log are held.
    """
    time = clock or SystemClock()
    logs = LogFollower(run, rank=rank)
    with stop_wishes() as wish:
        while not wish.times:
            over = run.owner() is None
            found = logs.read()
            yield from found
            if over and not found:
                return
            if not found:
                time.sleep(_POLL_SECONDS)


class LogFollower:
    """Reads the logs of a run from where they end now."""

    def __init__(self, run: RunFolder, *, rank: int | None = None) -> None:
        self._run = run
        self._rank = rank
        self._offsets = {file: file.stat().st_size for file in self._files()}

    def read(self) -> list[tuple[str, str]]:
        """Return the lines that came, a log after the other; at most 64 KiB of each."""
        return [(file.stem, line) for file in self._files() for line in self._lines(file)]

    def _files(self) -> list[Path]:
        if self._rank is not None:
            file = self._run.rank_log(self._rank)
            return [file] if file.is_file() else []
        return sorted(self._run.logs.glob("*.log"))

    def _lines(self, file: Path) -> list[str]:
        start = self._offsets.get(file, 0)
        with file.open("rb") as handle:
            if handle.seek(0, 2) < start:  # somebody cut it
                start = 0
            handle.seek(start)
            chunk = handle.read(_CHUNK_BYTES)
        # A line that is still being written waits, unless it fills the chunk.
        whole = chunk if len(chunk) == _CHUNK_BYTES else chunk[: chunk.rfind(b"\n") + 1]
        whole = whole[: whole.rfind(b"\n") + 1] or whole
        self._offsets[file] = start + len(whole)
        return whole.decode(errors="replace").splitlines()


def tail(file: Path, lines: int) -> list[str]:
    """Return the last lines of a text file, of which long ones may be cut at the front."""
    with file.open("rb") as handle:
        size = handle.seek(0, 2)
        handle.seek(max(0, size - lines * _LINE_BYTES))
        return handle.read().decode(errors="replace").splitlines()[-lines:]
