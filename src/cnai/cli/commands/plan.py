"""`ai-cli plan`: the layout that would be built, before anything starts."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import read_spec, spec_options
from cnai.cli.output import Output


@command(
    "plan",
    examples=["ai-cli plan run.yaml", "ai-cli plan run.yaml --all --set resources.ranks=64"],
)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show every legal layout, also rejected.")
def verb(out: Output, spec: Path, sets: tuple[str, ...], *, everything: bool) -> None:
    """Show the layout, its memory a rank and why, without starting anything."""
    from cnai.cli.plan_page import show_candidates, show_plan
    from cnai.core.records import to_dict
    from cnai.flows.plan import plan_run, weigh_run

    loaded = read_spec(spec, sets).spec
    plan = plan_run(loaded)
    others = weigh_run(loaded) if everything else ()
    out.record({
        **to_dict(plan),
        "digest": plan.digest,
        "ranks": plan.layout.ranks,
        "peak_bytes": plan.peak.memory.total_bytes,
        **({"alternatives": [to_dict(other) for other in others]} if everything else {}),
    })  # fmt: skip
    show_plan(out, plan)
    if everything:
        show_candidates(out, others)
    if loaded.resources.device == "auto":
        out.next("ai-cli run", spec)
