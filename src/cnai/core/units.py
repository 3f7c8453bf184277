"""Numbers with units, in and out: bytes, counts, seconds."""

from __future__ import annotations

import re

_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BYTES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)


def parse_bytes(text: str | int) -> int:
    """Read `80 GiB`, `80GB` or a plain number of bytes.

    Raises:
        ValueError: The text is no size.
    """
    if isinstance(text, int):
        return text
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` is no size; write for instance `80 GiB`")
    number, prefix, binary = match.groups()
    table = _BINARY if binary else _DECIMAL
    unit = table[prefix.lower()]
    return int(number) * unit if number.isdigit() else int(float(number) * unit)


def format_bytes(count: float) -> str:
    """Write a number of bytes for people, `1.5 GiB`."""
    for limit, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} B"


def format_count(count: float) -> str:
    """Write a count for people, `3.2 M`."""
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f}"


def format_seconds(seconds: float) -> str:
    """Write a duration for people, `2 h 05 min`, `3 min 20 s`, `4.2 s`, `5 ms`."""
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.{0 if seconds >= 0.001 else 1}f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
