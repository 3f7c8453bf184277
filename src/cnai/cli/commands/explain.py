"""`ai-cli explain`: the meaning of a key of the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from cnai.cli.framework import command
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.spec.explain import Explanation


def _complete(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from cnai.core.spec.keys import FIELDS, SECTIONS

    return [CompletionItem(key) for key in (*SECTIONS, *FIELDS) if key.startswith(incomplete)]


@command(
    "explain",
    examples=["ai-cli explain", "ai-cli explain parallel.model_parallel.split_layer"],
)
@click.argument("key", default="", shell_complete=_complete)
def verb(out: Output, key: str) -> None:
    """Tell what a key of the spec means.

    KEY is a dotted name such as train.steps, or a section such as train; without it the sections
    are listed.
    """
    from cnai.core.spec.explain import explain

    explanation = explain(key)
    out.record(explanation)
    if explanation.children:
        out.text(f"{explanation.key or 'spec'}: {explanation.doc}\n")
        out.table(
            ["key", "default", "meaning"], [_row(explain(one)) for one in explanation.children]
        )
    else:
        out.text(_page(explanation))


def _row(explanation: Explanation) -> tuple[str, str, str]:
    from cnai.core.spec.words import value_words

    default = "" if explanation.children else value_words(explanation.default)
    return explanation.key, default, explanation.doc


def _page(explanation: Explanation) -> str:
    from cnai.core.spec.words import value_words

    lines = [
        f"key:     {explanation.key}",
        f"type:    {explanation.type}",
        f"range:   {explanation.range or 'any'}",
        f"default: {value_words(explanation.default)}",
        f"meaning: {explanation.doc}",
    ]
    return "\n".join(lines)
