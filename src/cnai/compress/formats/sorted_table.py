"""A table of keys and values as TensorFlow keeps the index of a checkpoint in (leveldb's format).

Source: leveldb's doc/table_format.md; blocks may be compressed by snappy, whose format is described
in google/snappy's format_description.txt.
"""

from __future__ import annotations

from collections.abc import Iterator

from cnai.compress.formats.crc32c import crc32c, masked
from cnai.core.errors import DataError

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5
_PLAIN, _SNAPPY = 0, 1
_LARGEST_BLOCK = 256 * 2**20


def read_table(content: bytes, *, where: str) -> dict[bytes, bytes]:
    """Return all keys and values of a table.

    Raises:
        DataError: It is no table, or is damaged.
    """
    try:
        return _read(content)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"the table of the checkpoint is damaged: {error}",
            where=where,
            hint="copy the folder again, or export the model anew",
        ) from error


def _read(content: bytes) -> dict[bytes, bytes]:
    footer = content[-_FOOTER:]
    if len(footer) < _FOOTER or int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end as a table ends")
    _, place = _handle(footer, 0)
    index, _ = _handle(footer, place)
    found: dict[bytes, bytes] = {}
    for _, handle in _entries(_block(content, *index)):
        (start, size), _ = _handle(handle, 0)
        found.update(_entries(_block(content, start, size)))
    return found


def _handle(content: bytes, place: int) -> tuple[tuple[int, int], int]:
    start, place = varint(content, place)
    size, place = varint(content, place)
    return (start, size), place


def varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it.

    Raises:
        ValueError: There is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number goes on beyond its end")


def _block(content: bytes, start: int, size: int) -> bytes:
    end = start + size
    if end + _TRAILER > len(content):
        raise ValueError("a block lies beyond the end")
    kind = content[end]
    stored = int.from_bytes(content[end + 1 : end + _TRAILER], "little")
    if masked(crc32c(content[start : end + 1])) != stored:
        raise ValueError("the checksum of a block is wrong")
    if kind == _SNAPPY:
        return unsnappy(content[start:end])
    if kind != _PLAIN:
        raise ValueError(f"a block is compressed by the unknown method {kind}")
    return content[start:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; a key leaves out what it shares with the one before it."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise ValueError("a block is shorter than its list of restarts")
    place, key = 0, b""
    while place < end:
        shared, place = varint(block, place)
        fresh, place = varint(block, place)
        size, place = varint(block, place)
        if shared > len(key) or place + fresh + size > end:
            raise ValueError("an entry lies beyond the end of its block")
        key = key[:shared] + block[place : place + fresh]
        place += fresh
        yield key, block[place : place + size]
        place += size


def unsnappy(content: bytes) -> bytes:
    """Return what snappy compressed.

    Raises:
        ValueError: It is damaged.
    """
    size, place = varint(content, 0)
    if size > _LARGEST_BLOCK:
        raise ValueError(f"a block of {size} bytes is none")
    found = bytearray()
    while place < len(content):
        tag = content[place]
        place += 1
        if tag & 3:
            place = _repeat(content, place, tag, found)
        else:
            length, place = _literal_length(content, place, tag)
            found += content[place : place + length]
            place += length
        if len(found) > size:
            break
    if len(found) != size:
        raise ValueError("a compressed block has another size than it says")
    return bytes(found)


def _literal_length(content: bytes, place: int, tag: int) -> tuple[int, int]:
    length = tag >> 2
    if length < 60:
        return length + 1, place
    wide = length - 59
    return int.from_bytes(content[place : place + wide], "little") + 1, place + wide


def _repeat(content: bytes, place: int, tag: int, found: bytearray) -> int:
    """Append what stands some bytes before the end; it may overlap what it appends."""
    if tag & 3 == 1:
        length, wide = ((tag >> 2) & 7) + 4, 1
        offset = (tag >> 5) << 8 | content[place]
    else:
        length, wide = (tag >> 2) + 1, 2 if tag & 3 == 2 else 4
        offset = int.from_bytes(content[place : place + wide], "little")
    if not 0 < offset <= len(found):
        raise ValueError("a compressed block refers to before its beginning")
    for _ in range(length):
        found.append(found[-offset])
    return place + wide
