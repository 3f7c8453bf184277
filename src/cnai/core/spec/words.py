"""Types, ranges and values in plain words, read off the fields of the spec."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types

from cnai.core.spec.section import LARGEST_INT

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "`true` or `false`"}


def type_words(field: FieldInfo) -> str:
    """Say what a field holds, `a whole number or none`."""
    kind, optional = _kind(field)
    return _noun(kind) + (" or none" if optional else "")


def range_words(field: FieldInfo) -> str:
    """Say which values are allowed, `1 or more`; empty when any are."""
    return ", ".join(filter(None, (_bound(one) for one in _bounds(field))))


def choices(field: FieldInfo) -> tuple[str, ...]:
    """Return the values of a choice, nothing for other fields."""
    kind, _ = _kind(field)
    return get_args(kind) if get_origin(kind) is Literal else ()


def is_text(field: FieldInfo) -> bool:
    """Tell whether a field holds free text."""
    return _kind(field)[0] is str


def is_truth(field: FieldInfo) -> bool:
    """Tell whether a field holds true or false."""
    return _kind(field)[0] is bool


def value_words(value: object) -> str:
    """Write a value as a spec shows it, cut when it is long."""
    if value is None:
        return "none"
    if isinstance(value, str) and value.isprintable():
        text = value
    elif isinstance(value, float) and not math.isfinite(value):
        text = f".{value}".replace(".-", "-.")
    elif isinstance(value, bool | int | float | str | tuple | dict):
        text = json.dumps(value, default=str)
    else:
        text = f"{value!r} ({type(value).__name__})"
    return text if len(text) <= 60 else text[:57] + "..."


def _kind(field: FieldInfo) -> tuple[Any, bool]:
    """Return the type without none and without notes, and whether none is allowed."""
    kind: Any = field.annotation
    optional = get_origin(kind) in {Union, types.UnionType}
    if optional:
        kind = next(one for one in get_args(kind) if one is not type(None))
    return _bare(kind), optional


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _noun(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{one}`" for one in get_args(kind))
    if get_origin(kind) is tuple and get_args(kind)[1] is Ellipsis:
        return f"a list, each {_noun(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        parts = [_bare(one) for one in get_args(kind)]
        return f"a list of {len(parts)} {_NAMES[parts[0]].removeprefix('a ')}s"
    return _NAMES[kind]


def _bounds(field: FieldInfo) -> Iterator[Any]:
    """Yield the limits of a field, or of what its list or its `or none` holds."""
    yield from field.metadata
    for part in get_args(field.annotation)[:1]:
        if get_origin(part) is Annotated:
            yield from get_args(part)[1].metadata


def _bound(limit: Any) -> str:
    match limit:
        case annotated_types.Ge(ge=low):
            return f"{low} or more"
        case annotated_types.Gt(gt=low):
            return f"above {low}"
        case annotated_types.Le(le=high) if high != LARGEST_INT:
            return f"at most {high}"
        case annotated_types.Lt(lt=high):
            return f"below {high}"
    pattern = getattr(limit, "pattern", None)
    return f"matching `{pattern}`" if pattern else ""
