"""The last lines of logs that hold a text, found from the end without reading all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cnai.core.runfolder import RunFolder

MOST_LINES = 500
_BLOCK_BYTES = 1 << 18
_MOST_BYTES = 1 << 26
_LINE_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLines:
    """Lines of logs, oldest first.

    Attributes:
        lines: Name of the log and the line.
        complete: Whether all of the logs was looked at and everything found is here.
    """

    lines: tuple[tuple[str, str], ...]
    complete: bool


def log_names(run: RunFolder) -> list[str]:
    """Return the names of the logs of a run, ranks in order of their numbers."""
    names = [file.stem for file in run.logs.glob("*.log")]
    return sorted(names, key=lambda name: (len(name), name))


def find_lines(run: RunFolder, log: str | None, text: str, most: int = MOST_LINES) -> LogLines:
    """Return the last lines that hold a text, in any case; of all logs when `log` is None.

    Of each log at most the last 64 MiB are searched.
    """
    known = log_names(run)
    names = known if log is None else [name for name in known if name == log]
    share = max(1, most // max(1, len(names)))
    found: list[tuple[str, str]] = []
    complete = True
    for name in names:
        lines, all_seen = _last(run.logs / f"{name}.log", text, share)
        found += [(name, line) for line in reversed(lines)]
        complete = complete and all_seen
    return LogLines(lines=tuple(found), complete=complete)


def _last(file: Path, text: str, most: int) -> tuple[list[str], bool]:
    """Return matching lines, newest first, and whether the whole file was looked at."""
    wanted = text.lower()
    lines: list[str] = []
    seen = 0
    for line in _backwards(file):
        seen += len(line) + 1
        if seen > _MOST_BYTES:
            return lines, False
        shown = line.decode(errors="replace")
        if wanted in shown.lower():
            if len(lines) == most:
                return lines, False
            lines.append(shown[:_LINE_CHARS])
    return lines, True


def _backwards(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file from the last to the first."""
    try:
        handle = file.open("rb")
    except FileNotFoundError:
        return
    with handle:
        end = handle.seek(0, 2)
        rest = b""
        first = True
        while end:
            start = max(0, end - _BLOCK_BYTES)
            handle.seek(start)
            parts = (handle.read(end - start) + rest).split(b"\n")
            if first and parts[-1] == b"":
                parts.pop()
            first = False
            rest = parts[0]
            yield from reversed(parts[1:])
            end = start
        if rest or not first:
            yield rest
