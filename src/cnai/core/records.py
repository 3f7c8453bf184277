"""Frozen dataclasses to JSON and back; the only way that records leave a process."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from cnai.core.errors import DataError

T = TypeVar("T")


def encode(record: object) -> bytes:
    """Return the record as compact JSON (UTF-8, one line)."""
    return msgspec.json.encode(record)


def encode_pretty(record: object) -> bytes:
    """Return the record as indented JSON with a final newline, for files that people read."""
    return msgspec.json.format(encode(record), indent=2) + b"\n"


def to_dict(record: object) -> dict[str, Any]:
    """Return the record as plain dicts, lists, strings and numbers."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def decode(kind: type[T], text: bytes, *, where: str) -> T:
    """Read a record of the given type.

    Raises:
        DataError: The text is no JSON, or its fields do not have the types of the record.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"not a valid {kind.__name__}: {error}",
            where=where,
            hint="the file is damaged or from another version; restore it or make it anew",
        ) from error


def convert(kind: type[T], plain: object, *, where: str) -> T:
    """Like `decode`, from plain dicts and lists."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise DataError(
            f"not a valid {kind.__name__}: {error}",
            where=where,
            hint="the values come from another version; make them anew",
        ) from error
