"""A line of a log without what launchers and loggers put before it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 2000
"""Characters kept of a line; the rest says nothing new."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffd]")
_TIME = r"\d{4}-\d\d-\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[rank(?P<rank>\d{1,6})\]:? ?",
        r"\[default(?P<rank>\d{1,6})\]:? ?",
        r"\[(?P<rank>\d{1,6})\]: ?",
        r"(?P<rank>\d{1,6}): (?=\D)",
        r"\((?:\w+ ?)?(?:rank=(?P<rank>\d{1,6}) ?)?pid=\d+[^)]{0,80}\):? ?",
        r"worker-(?P<rank>\d{1,6})(?: \||:) ",
        r"\[?pod/[\w./-]{1,120}\]? ",
        r"[\w.-]{1,60}-(?P<rank>\d{1,6}) \| ",
        rf"\[?{_TIME}\]?(?: stdout [FP]| stderr [FP])?:? ?",
        r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} (?:kernel|[\w.-]{1,40}(?:\[\d+\])?): ?",
        r"\[ *\d{1,9}\.\d{1,9}\] ",
        r"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ",
        r"\d\d:\d\d:\d\d(?:[.,]\d+)? ",
    )
)
_SPOKEN_RANK = re.compile(
    r"\[Rank (\d{1,6})\]|\(RANK (\d{1,6})\)|\bon rank (\d{1,6})\b", re.IGNORECASE
)
_MOST_PREFIXES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line.

    Attributes:
        stream: Name of the log that it is in.
        number: From 1.
        raw: As it was printed, shortened and without control characters.
        text: Without prefixes; the indentation of a traceback is kept.
        rank: Rank that the prefix or the words name; None when they name none.
    """

    stream: str
    number: int
    raw: str
    text: str
    rank: int | None


def clean(raw: str) -> str:
    """Shorten a line and take out colours and control characters."""
    text = raw[:LONGEST]
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = _UNPRINTABLE.sub("", text)
    return text.rstrip()


def read_line(raw: str, *, stream: str, number: int) -> Line:
    """Take a line apart."""
    shown = clean(raw)
    text, rank = shown, None
    for _ in range(_MOST_PREFIXES):
        found = _prefix(text)
        if found is None:
            break
        text = text[found.end() :]
        if rank is None and found.groupdict().get("rank"):
            rank = int(found["rank"])
    return Line(stream=stream, number=number, raw=shown, text=text, rank=rank)


def spoken_rank(text: str) -> int | None:
    """Return the rank that a line names as its own."""
    found = _SPOKEN_RANK.search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def _prefix(text: str) -> re.Match[str] | None:
    first = text[:1]
    if not (first in "[(w" or first.isdigit() or first.isalpha()):
        return None
    return next((found for prefix in _PREFIXES if (found := prefix.match(text))), None)
