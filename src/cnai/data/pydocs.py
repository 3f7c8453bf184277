"""Text that every user already has: Python's own standard library.

It makes the first run work without a download. Each module is one document, in the order of the
module names, so one Python version always gives the same text.
"""

from __future__ import annotations

import ast
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

_SKIPPED = frozenset(
    {"test", "tests", "idle_test", "idlelib", "lib2to3", "site-packages", "dist-packages"}
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def standard_library() -> Iterator[tuple[str, str]]:
    """Yield name and source of every module, without tests and bundled tools."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if _SKIPPED.isdisjoint(place.parts) and not place.parts[0].startswith("config-"):
            with tokenize.open(path) as file:
                yield ".".join(place.with_suffix("").parts), file.read()


def prose(source: str) -> str:
    """Return the docstrings and the comments of a module, in their order, without the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    pieces: list[tuple[int, str]] = []
    in_strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            pieces.append((node.body[0].lineno, text))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            in_strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    pieces.extend(_comments(source, in_strings))
    return "\n\n".join(text for _, text in sorted(pieces)) + "\n" if pieces else ""


def _comments(source: str, in_strings: set[int]) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each run of comment lines."""
    start, lines = 0, list[str]()
    for number, line in enumerate([*source.split("\n"), ""], start=1):
        stripped = line.strip()
        if stripped.startswith("#") and number not in in_strings:
            start = start if lines else number
            lines.append(stripped)
        elif lines:
            yield start, "\n".join(lines)
            lines = []
