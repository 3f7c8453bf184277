"""What a key means: its type, range, default and doc, read off the spec's own fields."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from cnai.core.errors import SpecError
from cnai.core.spec.keys import FIELDS, SECTIONS, canonical, children, nearest
from cnai.core.spec.sections import RunSpec
from cnai.core.spec.words import range_words, type_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A key or a section, in words.

    Attributes:
        key: Dotted name; empty for the whole spec.
        type: What it holds, `section` for one with keys of its own.
        range: Which values are allowed; empty when any of the type are.
        default: The value when nobody gives one; None for none, and for a section.
        doc: What it means, one paragraph.
        children: Dotted names directly under a section.
    """

    key: str
    type: str
    range: str
    default: Any
    doc: str
    children: tuple[str, ...] = ()


def explain(key: str = "") -> Explanation:
    """Explain a key, a section, or with an empty name the whole spec.

    Raises:
        SpecError: There is no such key.
    """
    key = canonical(key.strip().strip("."))
    if key in FIELDS:
        field = FIELDS[key]
        return Explanation(
            key=key,
            type=type_words(field),
            range=range_words(field),
            default=field.default,
            doc=_paragraph(field.description or ""),
        )
    if key in SECTIONS or not key:
        kind = SECTIONS[key] if key else RunSpec
        return Explanation(
            key=key,
            type="section",
            range="",
            default=None,
            doc=_paragraph(inspect.getdoc(kind) or ""),
            children=children(key),
        )
    match = nearest(key)
    raise SpecError(
        f"unknown key `{key}`",
        where=key,
        hint=f"did you mean `{match}`?" if match else "list the keys with `ai-cli explain`",
    )


def all_keys() -> tuple[str, ...]:
    """Return every key that holds a value, in the order of the spec."""
    return tuple(FIELDS)


def _paragraph(text: str) -> str:
    return " ".join(text.split())
