"""What a layout of a user's own module must satisfy, by what its sharding table says."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from cnai.core.layout import Layout
from cnai.core.module import ModuleFacts
from cnai.core.recompute import Recompute
from cnai.plan.request import PlanRequest
from cnai.plan.violation import (
    CONTEXT,
    DATA,
    EXPERT,
    MODEL,
    SPLIT,
    STAGES,
    Violation,
    divisors,
    nearest,
)

_TABLE = "return `(module, {...})` with a sharding table, see docs/guides/own-module.md"


def module_violations(
    request: PlanRequest, facts: ModuleFacts | None, layout: Layout
) -> Iterator[Violation]:
    """Yield the rules that a layout of a user's module breaks."""
    for where, size in ((CONTEXT, layout.context), (EXPERT, layout.expert)):
        if size > 1:
            yield Violation(
                where=where,
                message=f"`{where}` is {size}, which only a decoder follows",
                hint=f"set `{where}: 1` and use `{DATA}`",
            )
    if facts is None:
        yield from _uncounted(layout)
        return
    yield from _split(facts, layout)
    if layout.split_sequence and layout.model > 1:
        yield Violation(
            where="parallel.model_parallel.sequence",
            message="`parallel.model_parallel.sequence` shares out positions, which only the "
            "layers of a decoder follow",
            hint="remove it",
        )
    if layout.pipeline > 1 and facts.no_cut:
        yield Violation(
            where=STAGES,
            message=f"`{STAGES}` is {layout.pipeline}, but `{facts.name}` cannot be cut: "
            f"{facts.no_cut}",
            hint=_TABLE,
        )
    if request.recompute != Recompute.NONE and facts.no_recompute:
        yield Violation(
            where="train.recompute",
            message=f"`train.recompute` is {request.recompute}, but the layers of `{facts.name}` "
            f"cannot be recomputed: {facts.no_recompute}",
            hint=f"remove `train.recompute`, or {_TABLE}",
        )


def _uncounted(layout: Layout) -> Iterator[Violation]:
    for where, size in ((MODEL, layout.model), (STAGES, layout.pipeline)):
        if size > 1:
            yield Violation(
                where=where,
                message=f"`{where}` is {size}, but nothing is known of the model",
                hint=f"set `{where}: 1` and use `{DATA}`",
            )


def _split(facts: ModuleFacts, layout: Layout) -> Iterator[Violation]:
    if layout.split_layer > len(facts.layers):
        yield Violation(
            where=SPLIT,
            message=f"`{SPLIT}` is {layout.split_layer}, but `{facts.name}` has "
            f"{len(facts.layers)} layers",
            hint=f"set it between 0 and {len(facts.layers)}, or {_TABLE}",
        )
    if layout.model == 1:
        return
    if facts.no_split:
        yield Violation(
            where=MODEL,
            message=f"`{MODEL}` is {layout.model}, but `{facts.name}` cannot be split: "
            f"{facts.no_split}",
            hint=_TABLE,
        )
        return
    uneven = [f"`{name}` {width}" for name, width in facts.widths if width % layout.model]
    if uneven:
        legal = divisors(gcd(*(width for _, width in facts.widths)))
        yield Violation(
            where=MODEL,
            message=f"`{MODEL}` is {layout.model}, which does not divide {uneven[0]}"
            + (f" and {len(uneven) - 1} more" if len(uneven) > 1 else ""),
            hint=f"set it to {nearest(layout.model, legal)}, or change the module",
        )
