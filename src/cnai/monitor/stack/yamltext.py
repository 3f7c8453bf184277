"""Plain values as YAML that people can read; strings are quoted where that is not sure."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "inf", "nan"}


def as_yaml(value: dict[str, Any]) -> str:
    """Return a mapping of mappings, lists, strings and numbers as a YAML document.

    A string with newlines becomes a literal block.
    """
    return "\n".join(_mapping(value, "")) + "\n"


def _mapping(value: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for key, one in value.items():
        lines += _entry(f"{indent}{_scalar(key)}:", one, indent)
    return lines


def _entry(head: str, value: Any, indent: str) -> list[str]:
    """Return a key or a dash with its value, on the same line when the value is small."""
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        return [head, *_mapping(value, deeper)]
    if isinstance(value, list) and value:
        return [head, *_items(value, deeper)]
    if isinstance(value, str) and "\n" in value:
        mark = "|" if value.endswith("\n") else "|-"
        body = value.removesuffix("\n").split("\n")
        return [f"{head} {mark}", *(f"{deeper}{line}" if line else "" for line in body)]
    return [f"{head} {_scalar(value)}"]


def _items(values: list[Any], indent: str) -> list[str]:
    lines = []
    for one in values:
        if isinstance(one, dict) and one:
            first, *rest = _mapping(one, indent + "  ")
            lines += [f"{indent}- {first.lstrip()}", *rest]
        else:
            lines += _entry(f"{indent}-", one, indent)
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
