"""Vectors of a run: one row of float32 a step, in a file that is only ever appended to.

A frame is a magic, its kind, the length and the CRC-32 of what follows. A frame of columns says how
the rows after it are laid out; every writer begins with one, so that an attempt may have others
than the one before. A reader passes over a frame that is torn or damaged and goes on at the next:
a writer may be killed, or its disk be full, at any moment.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cnai.core.errors import DataError
from cnai.core.events import Event
from cnai.core.files import saving
from cnai.core.records import decode, encode, to_dict

Vector = npt.NDArray[np.float32]

_MAGIC = b"\xc5VEC"
_HEAD = struct.Struct("<4sBxxxII")
_ROW = struct.Struct("<dqi")
_COLUMNS, _VALUES = 1, 2


@dataclass(frozen=True, slots=True)
class Columns:
    """What the places of a vector stand for: groups, each with the names of its members.

    Attributes:
        matrices: Parameters with more than one axis, with the numbers of each, in the order of the
            model; the others are biases and scales.
    """

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    matrices: tuple[tuple[str, int], ...] = ()

    @property
    def width(self) -> int:
        """Places of a vector."""
        return sum(len(names) for _, names in self.groups)

    def names(self, group: str) -> tuple[str, ...]:
        """Members of a group; none when it is not there."""
        return dict(self.groups).get(group, ())

    def place(self, group: str) -> slice:
        """Where the members of a group stand; empty when it is not there."""
        start = 0
        for name, members in self.groups:
            if name == group:
                return slice(start, start + len(members))
            start += len(members)
        return slice(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayersMeasured(Event):
    """What was measured in every layer in a step. It lies in `records/`, never among the events.

    Attributes:
        step: Steps finished, counted from 1.
        values: float32, as `columns` says; NaN where something was not measured in this step.
    """

    attempt: int
    step: int
    columns: Columns
    values: Vector

    def group(self, name: str) -> Vector:
        """Return the values of a group; empty when it is not there."""
        return self.values[self.columns.place(name)]

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of the members of a group."""
        return self.columns.names(name)


class VectorWriter:
    """Appends frames to one file that nobody else writes, each in one call."""

    def __init__(self, path: Path) -> None:
        with saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.path = path
        self._columns: Columns | None = None

    def write(self, record: LayersMeasured) -> None:
        """Append one step, with its columns before it where these are new.

        Raises:
            RunError: The disk is full or the file cannot be written.
        """
        head = b""
        if record.columns != self._columns:
            head = _frame(_COLUMNS, encode(to_dict(record.columns)))
        values = np.ascontiguousarray(record.values, dtype="<f4")
        row = _ROW.pack(record.time_unix, record.step, record.attempt) + values.tobytes()
        line = head + _frame(_VALUES, row)
        self._columns = None  # after a write that failed they are written again
        with saving(self.path):
            while line:
                line = line[os.write(self._handle, line) :]
        self._columns = record.columns

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


class VectorFollower:
    """Reads a file of vectors from where the last read ended.

    Attributes:
        skipped: Places at which something torn or damaged was passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._columns: Columns | None = None
        self.skipped = 0

    def read(self) -> list[LayersMeasured]:
        """Return what came since the last call; nothing while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return []
        found: list[LayersMeasured] = []
        at = 0
        while at < len(content):
            end = _whole(content, at)
            if end is None:
                after = _next_whole(content, at + 1)
                if after is None:
                    break  # its writer may still be at it
                self.skipped += 1
                at = after
                continue
            found += self._take(content[at:end])
            at = end
        self._offset += at
        return found

    def _take(self, frame: bytes) -> Iterable[LayersMeasured]:
        kind, payload = frame[4], frame[_HEAD.size :]
        if kind == _COLUMNS:
            self._columns = self._read_columns(payload)
        elif kind == _VALUES and self._columns is not None:
            time_unix, step, attempt = _ROW.unpack_from(payload)
            values = np.frombuffer(payload, dtype="<f4", offset=_ROW.size)
            if len(values) == self._columns.width:
                yield LayersMeasured(
                    time_unix=time_unix,
                    attempt=attempt,
                    step=step,
                    columns=self._columns,
                    values=values,
                )
                return
            self.skipped += 1

    def _read_columns(self, payload: bytes) -> Columns | None:
        try:
            found = decode(Columns, payload, where=str(self._path))
        except DataError:
            self.skipped += 1
            return None
        return found


def read_vectors(path: Path) -> list[LayersMeasured]:
    """Return all that a file holds, a step that was repeated as done last, ordered by step."""
    last = {one.step: one for one in VectorFollower(path).read()}
    return [last[step] for step in sorted(last)]


def curve_of(records: Sequence[LayersMeasured], group: str, name: str) -> Vector:
    """Return one member over the records, NaN where it is not there."""
    found = np.full(len(records), np.nan, dtype=np.float32)
    for row, record in enumerate(records):
        names = record.names(group)
        if name in names:
            found[row] = record.group(group)[names.index(name)]
    return found


def _frame(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(_MAGIC, kind, len(payload), zlib.crc32(payload)) + payload


def _whole(content: bytes, at: int) -> int | None:
    """Return the end of the frame that begins here; None when none does, or it is torn."""
    if len(content) - at < _HEAD.size:
        return None
    magic, _, length, crc = _HEAD.unpack_from(content, at)
    end = at + _HEAD.size + int(length)
    if magic != _MAGIC or end > len(content):
        return None
    return end if zlib.crc32(content[at + _HEAD.size : end]) == crc else None


def _next_whole(content: bytes, at: int) -> int | None:
    """Return where the next frame begins that is whole."""
    while (at := content.find(_MAGIC, at)) >= 0:
        if _whole(content, at) is not None:
            return at
        at += 1
    return None
