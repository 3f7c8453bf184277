"""TensorBoard's event files, written and read without TensorFlow.

A file is a row of records: length (8 bytes), checksum of it, an `Event` message, checksum of that.
An Event has wall_time = 1 (double), step = 2 (varint), summary = 5; a Summary has values = 1, each
with tag = 1, simple_value = 2 (float) or tensor = 8. Source: tensorflow/core/util/event.proto and
framework/summary.proto; io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from cnai.core.errors import DataError
from cnai.monitor.series import Numbers, RunTable

Checksum = Callable[[bytes], int]
"""The masked CRC-32C of some bytes."""

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_HINT = "name a file that TensorBoard's writer made, `events.out.tfevents.*`"


def tensorboard_of(table: RunTable, checksum: Checksum, *, time_unix: float) -> bytes:
    """Return the file of a table."""
    version = _field(1, _EIGHT, struct.pack("<d", time_unix)) + _text(3, b"brain.Event:2")
    frames = [_record(version, checksum)]
    columns = [(name.encode(), one.tolist()) for name, one in table.columns.items()]
    for row, step in enumerate(table.steps.tolist()):
        values = b"".join(
            _text(1, _text(1, name) + _field(2, _FOUR, struct.pack("<f", one[row])))
            for name, one in columns
            if one[row] == one[row]
        )
        wall = _field(1, _EIGHT, struct.pack("<d", time_unix))
        event = wall + _field(2, _VARINT, _varint(step)) + _text(5, values)
        frames.append(_record(event, checksum))
    return b"".join(frames)


def table_of_tensorboard(content: bytes, *, where: str) -> RunTable:
    """Read the scalars of a file; what is torn at its end is left out.

    Raises:
        DataError: It is none.
    """
    found: dict[str, dict[int, float]] = {}
    steps: set[int] = set()
    try:
        for event in _records(content):
            step, summary = _event(event)
            for number, _, value in _fields(summary):
                if number == 1:
                    tag, one = _value(value)
                    if tag and one is not None:
                        found.setdefault(tag, {})[step] = one
                        steps.add(step)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise DataError(f"not an event file: {error}", where=where, hint=_HINT) from error
    if not found:
        raise DataError("no scalars in it", where=where, hint=_HINT)
    ordered = sorted(steps)
    columns: dict[str, Numbers] = {
        tag: np.array([one.get(step, np.nan) for step in ordered]) for tag, one in found.items()
    }
    return RunTable(np.array(ordered, dtype=np.int64), columns)


def files_of(path: Path) -> list[Path]:
    """Return the event files of a folder, or the file itself."""
    return sorted(path.rglob("*tfevents*")) if path.is_dir() else [path]


def _record(payload: bytes, checksum: Checksum) -> bytes:
    length = struct.pack("<Q", len(payload))
    sums = (struct.pack("<I", checksum(part)) for part in (length, payload))
    return length + next(sums) + payload + next(sums)


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        end = at + 12 + length
        if end + 4 > len(content):
            return
        yield content[at + 12 : end]
        at = end + 4


def _event(event: bytes) -> tuple[int, bytes]:
    step, summary = 0, b""
    for number, kind, value in _fields(event):
        if number == 2 and kind == _VARINT:
            step = int.from_bytes(value, "little")
        elif number == 5:
            summary = value
    return step, summary


def _value(message: bytes) -> tuple[str, float | None]:
    tag, found = "", None
    for number, kind, value in _fields(message):
        if number == 1:
            tag = value.decode()
        elif number == 2 and kind == _FOUR:
            found = struct.unpack("<f", value)[0]
        elif number == 8:
            found = _tensor(value)
    return tag, found


def _tensor(message: bytes) -> float | None:
    """Return a tensor of one float; None for any other."""
    for number, kind, value in _fields(message):
        if number == 4 and len(value) == 4:  # tensor_content
            return float(struct.unpack("<f", value)[0])
        if number == 5 and kind in {_FOUR, _BYTES} and len(value) == 4:  # float_val
            return float(struct.unpack("<f", value)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, kind, value.to_bytes(10, "little")
            continue
        length = {_EIGHT: 8, _FOUR: 4}.get(kind)
        if length is None:
            length, at = _read_varint(message, at)
        if at + length > len(message):
            raise IndexError("a message is cut short")
        yield key >> 3, kind, message[at : at + length]
        at += length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _varint(value: int) -> bytes:
    text = bytearray()
    while value > 0x7F:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    text.append(value)
    return bytes(text)


def _field(number: int, kind: int, value: bytes) -> bytes:
    return _varint(number << 3 | kind) + value


def _text(number: int, value: bytes) -> bytes:
    return _field(number, _BYTES, _varint(len(value)) + value)
