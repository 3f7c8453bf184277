"""Specs to start from, written from the docs of the keys themselves."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import yaml

from cnai.core.errors import SpecError
from cnai.core.spec.dialect import Dumper
from cnai.core.spec.explain import Explanation, explain
from cnai.core.spec.sections import SPEC_VERSION

KINDS = ("quickstart", "full")

QUICKSTART: MappingProxyType[str, Any] = MappingProxyType({
    "model.layers": 4,
    "model.width": 128,
    "model.heads": 4,
    "model.sequence": 128,
    "data.source": "pydocs",
    "train.steps": 200,
    "train.batch": 16,
    "train.learning_rate": 3e-3,
    "compress.max_loss": 0.01,
    "serve.port": 8000,
})  # fmt: skip
"""Keys that a first run may want to change."""

_PARALLEL = """
# How the model lies over ranks is chosen for the machine; to say it yourself:
# parallel:
#   data_parallel: {size: 2}
#   model_parallel: {size: 2, split_layer: 0}
#   pipeline_parallel: {stages: 2}
"""


def template(kind: str = "quickstart", *, name: str = "quickstart") -> str:
    """Return a commented spec.

    Args:
        kind: `quickstart` (a small run with the keys that one changes first) or `full` (every key
            with its default, commented out).
        name: Name of the run.

    Raises:
        SpecError: There is no such kind.
    """
    if kind == "quickstart":
        return _quickstart(name)
    if kind == "full":
        return _full(name)
    raise SpecError(
        f"unknown template `{kind}`", where="--kind", hint="choose `quickstart` or `full`"
    )


def _quickstart(name: str) -> str:
    lines = [
        "# From data to a served model. `ai-cli explain KEY` tells what a key means.",
        *_head(name),
    ]
    section = ""
    for key, value in QUICKSTART.items():
        group, _, leaf = key.rpartition(".")
        if group != section:
            section = group
            lines += ["", f"{group}:"]
        entry = f"  {leaf}: {_yaml(value)}"
        lines.append(f"{entry:<24}  # {_brief(explain(key).doc)}")
    return "\n".join(lines) + "\n" + _PARALLEL


def _full(name: str) -> str:
    head = ["## Every key with its default; to set one, uncomment it and its section."]
    lines = [*head, *_head(name)]
    for key in explain().children:
        if key not in {"version", "name"}:
            lines += ["", *_commented(explain(key), depth=0)]
    return "\n".join(lines) + "\n"


def _head(name: str) -> list[str]:
    return [f"version: {SPEC_VERSION}", f"name: {_yaml(name)}"]


def _commented(one: Explanation, *, depth: int) -> Iterator[str]:
    """Yield docs and keys so that they are right once each line has lost its first `#`."""
    indent, leaf = "  " * depth, one.key.rpartition(".")[2]
    limits = f" ({one.type}{', ' + one.range if one.range else ''})" if not one.children else ""
    for line in textwrap.wrap(one.doc + limits, 96 - len(indent)):
        yield f"#{indent}# {line}"
    yield f"#{indent}{leaf}:" + ("" if one.children else f" {_yaml(one.default)}")
    for child in one.children:
        yield from _commented(explain(child), depth=depth + 1)


def _yaml(value: Any) -> str:
    """Write one value on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.dump(plain, Dumper=Dumper, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def _brief(doc: str) -> str:
    """Return the first clause of a doc, cut to fit the line."""
    clause = re.split(r"[;.] |\.$", doc, maxsplit=1)[0]
    return textwrap.shorten(clause, 70, placeholder=" ...")
