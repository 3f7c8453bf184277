"""Frozen dataclasses to JSON and back; the only way that records leave a process.

JSON has no NaN and no infinity, and a diverged run has both in its losses: they are written as the
texts `nan`, `inf` and `-inf`, and read back as numbers where a record wants one.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from cnai.core.errors import DataError

T = TypeVar("T")


def encode(record: object) -> bytes:
    """Return the record as compact JSON (UTF-8, one line)."""
    return msgspec.json.encode(_written(msgspec.to_builtins(record)))


def encode_pretty(record: object) -> bytes:
    """Return the record as indented JSON with a final newline, for files that people read."""
    return msgspec.json.format(encode(record), indent=2) + b"\n"


def to_dict(record: object) -> dict[str, Any]:
    """Return the record as plain dicts, lists, strings and numbers; NaN stays a number."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def decode(kind: type[T], text: bytes, *, where: str) -> T:
    """Read a record of the given type.

    Raises:
        DataError: The text is no JSON, or its fields do not have the types of the record.
    """
    try:
        return _converted(kind, msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"not a valid {kind.__name__}: {error}",
            where=where,
            hint="the file is damaged or from another version; restore it or make it anew",
        ) from error


def convert(kind: type[T], plain: object, *, where: str) -> T:
    """Like `decode`, from plain dicts and lists."""
    try:
        return _converted(kind, plain)
    except msgspec.ValidationError as error:
        raise DataError(
            f"not a valid {kind.__name__}: {error}",
            where=where,
            hint="the values come from another version; make them anew",
        ) from error


def _converted(kind: type[T], plain: object) -> T:
    """Build the record; only one that holds `nan` or `inf` is read leniently."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        if _holds_odd_number(plain):
            return msgspec.convert(plain, kind, strict=False)
        raise


_ODD_NUMBERS = frozenset({"nan", "inf", "-inf"})


def _written(plain: Any) -> Any:
    """Replace the numbers that JSON cannot hold by their names."""
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    if isinstance(plain, dict):
        return {key: _written(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_written(value) for value in plain]
    return plain


def _holds_odd_number(plain: object) -> bool:
    if isinstance(plain, dict):
        return any(_holds_odd_number(value) for value in plain.values())
    if isinstance(plain, list | tuple):
        return any(_holds_odd_number(value) for value in plain)
    return isinstance(plain, str) and plain in _ODD_NUMBERS
