"""Python tracebacks in a log, with whatever prefix a launcher put before each line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.diagnose.diagnosis import LogLine

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|<string>")
_CHAIN_GAP_LINES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback:
    """One exception.

    Attributes:
        error: The line that names it.
        frame: `FILE:LINE` of the innermost frame outside libraries, else of the innermost.
        chained: Whether it came out of the one before it.
    """

    error: LogLine
    frame: str | None
    chained: bool


def find_tracebacks(lines: Sequence[LogLine]) -> list[Traceback]:
    """Return the exceptions of a log in order."""
    found: list[Traceback] = []
    index = 0
    while index < len(lines):
        column = lines[index].text.find(_START)
        if column < 0:
            index += 1
            continue
        prefix = lines[index].text[:column]
        body, error = _body(lines, index + 1, prefix)
        if error is None:
            break
        found.append(
            Traceback(
                error=error,
                frame=_frame(body),
                chained=bool(found) and _is_chained(lines, found[-1].error, index),
            )
        )
        index += len(body) + 1
    return found


def last_chain(tracebacks: Sequence[Traceback]) -> list[Traceback]:
    """Return the exceptions that led to the last one, the first cause first."""
    chain: list[Traceback] = []
    for traceback in reversed(tracebacks):
        chain.insert(0, traceback)
        if not traceback.chained:
            break
    return chain


def _body(lines: Sequence[LogLine], start: int, prefix: str) -> tuple[list[str], LogLine | None]:
    """Return the frames' lines, and the line after them, which names the error."""
    body: list[str] = []
    for line in lines[start:]:
        text = line.text.removeprefix(prefix) if prefix else line.text
        if text and not text[0].isspace():
            return body, LogLine(file=line.file, number=line.number, text=text)
        body.append(text)
    return body, None


def _frame(body: Sequence[str]) -> str | None:
    frames = [match for text in body if (match := _FRAME.match(text))]
    own = [match for match in frames if not _LIBRARY.search(match["file"])]
    innermost = (own or frames)[-1:]
    return f"{innermost[0]['file']}:{innermost[0]['line']}" if innermost else None


def _is_chained(lines: Sequence[LogLine], before: LogLine, index: int) -> bool:
    """Tell whether the text between two tracebacks says that one led to the other."""
    gap = lines[max(0, index - _CHAIN_GAP_LINES) : index]
    return any(
        line.number > before.number and any(words in line.text for words in _CHAIN) for line in gap
    )
