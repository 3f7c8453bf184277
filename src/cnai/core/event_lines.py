"""Events as lines of text.

A line is `{"kind": "StepDone", "v": 1, "time_unix": ..., <fields of the record>}`. A reader skips
kinds that it does not know, so that an older panel can watch a newer run.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.errors import DataError
from cnai.core.events import KINDS, Event
from cnai.core.records import convert, decode, encode, to_dict

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    kind: str
    v: int


def event_line(event: Event) -> bytes:
    """Return the event as one JSON line, newline included."""
    return encode({"kind": type(event).__name__, "v": VERSION, **to_dict(event)}) + b"\n"


def parse_event(line: bytes, *, where: str) -> Event | None:
    """Read one line; None when it is torn, damaged, or of a kind that this version does not know.

    Args:
        line: One line of an event file.
        where: The file.
    """
    try:
        plain = decode(dict, line, where=where)
        header = convert(_Header, plain, where=where)
        kind = KINDS.get(header.kind)
        return convert(kind, plain, where=where) if kind and header.v <= VERSION else None
    except DataError:
        return None
