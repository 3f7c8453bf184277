"""Which words mean which fault: the rows of `table/*.toml`, found fast.

A row belongs to a class and has patterns. A line is compared only with rows of which it holds a
literal part; the choice is remembered by the line's template (the line with its digits masked), so
that a log that says the same thing a million times is searched once.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files

BENIGN_CLASSES = frozenset({"benign", "progress"})
PEER_GONE = "peer_gone"
_MOST_TEMPLATES = 50_000
_SHORTEST_LITERAL = 3
_DIGITS = re.compile(r"\b[a-f]{0,8}\d[0-9a-f]*|\d+", re.IGNORECASE)
_COUNT_OR_ESCAPE = re.compile(r"\{[\d,]+\}|\\d|\\.|\[[^]]*\]")


class Role(StrEnum):
    """What a line is in the story of a failure."""

    ROOT = "root"
    WEAK = "weak"
    WAITED = "waited"
    CASCADE = "cascade"
    CONFIRM = "confirm"
    BENIGN = "benign"


_WEIGHTS = {
    Role.ROOT: 1.0, Role.WEAK: 0.55, Role.WAITED: 0.5, Role.CASCADE: 0.1, Role.CONFIRM: 0.1,
    Role.BENIGN: 0.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pattern:
    """One wording.

    Attributes:
        literals: Lower-case texts of which a line must hold one; empty when any line may match.
        counts: It asks for certain digits, so that a template does not decide.
    """

    source: str
    compiled: re.Pattern[str]
    literals: tuple[str, ...]
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Signature:
    """A row of the table.

    Attributes:
        fault: Class that it names.
        weight: How much it says by itself; more than 1 beats the common words of its rivals.
        sticky: It counts even when training goes on afterwards.
        patterns: One of them must match.
        unless: What excuses a line; None for nothing.
        examples: Lines that it must match.
    """

    name: str
    fault: str
    role: Role
    weight: float
    sticky: bool
    patterns: tuple[Pattern, ...]
    unless: re.Pattern[str] | None
    examples: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Tell whether a line says it."""
        return any(one.compiled.search(text) for one in self.patterns) and not self.excuses(text)

    def excuses(self, text: str) -> bool:
        """Tell whether a line has words that take back what it says."""
        return bool(self.unless and self.unless.search(text))


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """Return the rows, in the order of the files' names."""
    folder = files("cnai.diagnose") / "table"
    tables = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=str)
    return tuple(
        _row(fault, row)
        for table in tables
        for fault, rows in tomllib.loads(table.read_text()).items()
        for row in rows
    )


class Matcher:
    """Finds the rows of lines; what a template can never match is asked once."""

    def __init__(self) -> None:
        self._rows = signatures()
        self._known: dict[str, tuple[tuple[Signature, tuple[Pattern, ...]], ...]] = {}

    def find(self, text: str) -> list[Signature]:
        """Return the rows that a line matches."""
        template = _DIGITS.sub("0", text)
        choices = self._known.get(template)
        if choices is None:
            choices = self._choices(template)
            if len(self._known) >= _MOST_TEMPLATES:
                self._known.clear()
            self._known[template] = choices
        return [
            row
            for row, patterns in choices
            if any(one.compiled.search(text) for one in patterns) and not row.excuses(text)
        ]

    def _choices(self, template: str) -> tuple[tuple[Signature, tuple[Pattern, ...]], ...]:
        lowered = template.lower()
        found: dict[Signature, list[Pattern]] = {}
        for literal, pairs in by_literal().items():
            if literal in lowered:
                for row, pattern in pairs:
                    if pattern.counts or pattern.compiled.search(template):
                        found.setdefault(row, []).append(pattern)
        return tuple((row, tuple(found[row])) for row in self._rows if row in found)


@functools.cache
def by_literal() -> dict[str, tuple[tuple[Signature, Pattern], ...]]:
    """Return the patterns by the texts that they need; the empty text needs nothing."""
    found: dict[str, list[tuple[Signature, Pattern]]] = {}
    for row in signatures():
        for pattern in row.patterns:
            for literal in pattern.literals or ("",):
                found.setdefault(literal, []).append((row, pattern))
    return {literal: tuple(pairs) for literal, pairs in found.items()}


def _row(fault: str, row: dict[str, object]) -> Signature:
    when = [str(one) for one in _list(row["when"])]
    role = Role(str(row.get("role", "root")))
    unless = _list(row.get("unless", []))
    return Signature(
        name=str(row["id"]),
        fault=fault,
        role=role,
        weight=float(str(row.get("weight", _WEIGHTS[role]))),
        sticky=bool(row.get("sticky", False)),
        patterns=tuple(map(_pattern, when)),
        unless=re.compile("|".join(map(str, unless)), re.IGNORECASE) if unless else None,
        examples=tuple(str(one) for one in _list(row["seen"])),
    )


def _pattern(source: str) -> Pattern:
    return Pattern(
        source=source,
        compiled=re.compile(_cased(source), re.IGNORECASE),
        literals=literals_of(source),
        counts=bool(re.search(r"\d", _COUNT_OR_ESCAPE.sub("", source))) or "\\d{" in source
        or "(?" in source or "[^" in source or "[1-9]" in source or "0-9" in source,
    )  # fmt: skip


def _cased(pattern: str) -> str:
    """Group a pattern; one in capitals alone, such as ENOTFOUND, means capitals."""
    letters = re.sub(r"\\.", "", pattern)
    return f"(?-i:{pattern})" if letters.isupper() else f"(?:{pattern})"


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"a list belongs here, not {value!r}")
    return value


def literals_of(pattern: str) -> tuple[str, ...]:
    """Return lower-case texts of which every match of a pattern holds one; empty when none is sure.

    Sets, repeats and digits never count: templates mask digits.
    """
    branches = _branches(pattern)
    if len(branches) > 1:
        found = [literals_of(branch) for branch in branches]
        return tuple(one for each in found for one in each) if all(found) else ()
    choices = [choice for choice in _choices(pattern) if choice]
    best = max(choices, key=lambda choice: min(map(len, choice)), default=())
    return best if best and min(map(len, best)) >= _SHORTEST_LITERAL else ()


def _branches(pattern: str) -> list[str]:
    """Split a pattern at the bars outside of groups and sets."""
    parts, start, at = [], 0, 0
    while at < len(pattern):
        if pattern[at] == "|":
            parts.append(pattern[start:at])
            start = at + 1
        at += _width(pattern, at)
    return [*parts, pattern[start:]]


def _choices(pattern: str) -> list[tuple[str, ...]]:
    """Return what a pattern without bars must hold: runs of text, and what its groups must hold."""
    choices: list[tuple[str, ...]] = []
    run, at = "", 0
    while at < len(pattern):
        width = _width(pattern, at)
        piece, follows = pattern[at : at + width], pattern[at + width : at + width + 1]
        optional = follows in {"?", "*", "{"}
        letter = "" if optional else _letter(piece)
        if letter:
            run += letter
        else:
            choices.append((run,) if run else ())
            run = ""
            if piece.startswith("(") and not optional:
                choices.append(_of_group(piece))
        at += width
    return [*choices, (run,) if run else ()]


def _of_group(group: str) -> tuple[str, ...]:
    inner = re.sub(r"^\((\?:|\?-i:)?", "", group)[:-1]
    return () if inner.startswith("?") else literals_of(inner)


def _letter(piece: str) -> str:
    """Return the character that a piece of a pattern means, empty when it may be several."""
    if len(piece) == 2 and piece[0] == "\\":
        return "" if piece[1].isalnum() else piece[1]
    if len(piece) != 1 or piece in ".^$+?*" or piece.isdigit():
        return ""
    return piece.lower()


def _width(pattern: str, at: int) -> int:
    """Return how many characters the piece at a place has: an escape, a set, a group, a count."""
    char = pattern[at]
    if char == "\\":
        return 2
    if char == "[":
        return pattern.index("]", at + 2) - at + 1
    if char == "{":
        return pattern.index("}", at) - at + 1
    if char != "(":
        return 1
    inside = at + 1
    while pattern[inside] != ")":
        inside += _width(pattern, inside)
    return inside - at + 1
