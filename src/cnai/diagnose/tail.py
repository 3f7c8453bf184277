"""The end of a log, read with bounded memory however long the log is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cnai.core.runfolder import ATTEMPT_MARK
from cnai.diagnose.diagnosis import LogLine

TAIL_BYTES = 256 * 1024
_CHUNK_BYTES = 1024 * 1024
_LINE_CHARACTERS = 2000
_NUMBER = re.compile(r"\d{1,9}")


def read_tail(path: Path, *, name: str | None = None, attempt: int | None = None) -> list[LogLine]:
    """Return the last lines of an attempt with their numbers; empty without a log.

    Args:
        path: The log.
        name: How the lines name it; None = its path.
        attempt: None = the newest. Where the log names no attempt, all of it counts.

    A first line that was cut in half is left out. Very long lines are shortened, control
    characters removed; bytes that are no text are replaced.
    """
    try:
        with path.open("rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            number = 1 + _count_lines(file.fileno(), start)
            file.seek(start)
            content = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return []
    lines = content.decode(errors="replace").split("\n")
    if start and len(lines) > 1:
        lines, number = lines[1:], number + 1
    if lines and not lines[-1]:
        lines.pop()
    found = [
        LogLine(file=name or str(path), number=number + offset, text=_clean(line))
        for offset, line in enumerate(lines)
    ]
    return _of_attempt(found, attempt)


def _of_attempt(lines: list[LogLine], attempt: int | None) -> list[LogLine]:
    marks = [at for at, line in enumerate(lines) if line.text.startswith(ATTEMPT_MARK)]
    if not marks:
        return lines
    if attempt is None:
        return lines[marks[-1] + 1 :]
    for at, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        number = _NUMBER.match(lines[at].text.removeprefix(ATTEMPT_MARK))
        if number and int(number[0]) == attempt:
            return lines[at + 1 : end]
    return []


def _count_lines(handle: int, end: int) -> int:
    """Count the newlines before a position, a chunk at a time."""
    count = position = 0
    while position < end:
        chunk = os.pread(handle, min(_CHUNK_BYTES, end - position), position)
        if not chunk:
            break
        count += chunk.count(b"\n")
        position += len(chunk)
    return count


def _clean(line: str) -> str:
    shown = "".join(c for c in line[:_LINE_CHARACTERS] if c.isprintable() or c == "\t")
    return shown.rstrip()
