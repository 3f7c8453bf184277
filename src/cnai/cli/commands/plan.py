"""`ai-cli plan`: the layout that would be built, before anything starts."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import read_spec, spec_options, yes_flag
from cnai.cli.output import Output


@command(
    "plan",
    examples=[
        "ai-cli plan run.yaml",
        "ai-cli plan run.yaml --all --set resources.ranks=64",
        "ai-cli plan run.yaml --search --objective cost --what-if --write planned.yaml",
    ],
)
@spec_options
@click.option("--all", "everything", is_flag=True, help="Show every legal layout, also rejected.")
@click.option(
    "--search",
    "searching",
    is_flag=True,
    help="Also search what the spec leaves at its default: schedule, recomputing, and so on.",
)
@click.option(
    "--objective",
    type=click.Choice(["time", "cost", "energy"], case_sensitive=False),
    default="time",
    show_default=True,
    help="What a search makes small; cost and energy also weigh fewer machines.",
)
@click.option("--what-if", "asks_more", is_flag=True, help="Show what other machines would bring.")
@click.option("--timeline", "draws", is_flag=True, help="Draw who works when in a step.")
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the spec with the plan in its `parallel` section to this file.",
)
@yes_flag
def verb(
    out: Output,
    spec: Path,
    sets: tuple[str, ...],
    *,
    everything: bool,
    searching: bool,
    objective: str,
    asks_more: bool,
    draws: bool,
    target: Path | None,
    yes: bool,
) -> None:
    """Show the layout, its memory a rank and why, without starting anything."""
    from cnai.cli.plan_page import (
        show_bill,
        show_candidates,
        show_changes,
        show_plan,
        show_timeline,
    )
    from cnai.core.errors import SpecError
    from cnai.core.records import to_dict
    from cnai.core.spec.writing import to_yaml
    from cnai.flows import plan as flow

    loaded = read_spec(spec, sets).spec
    if objective != "time" and not searching:
        raise SpecError(
            f"`--objective {objective}` is for a search", where="--objective", hint="add --search"
        )
    plan, request, others = flow.planned(
        loaded, objective=objective if searching else None, everything=everything
    )
    changes = flow.what_if(loaded, request, plan) if asks_more else ()
    bill = flow.bill_of(loaded, plan)
    if target is not None:
        _write(out, target, to_yaml(flow.written(loaded, request)), yes=yes)
    out.record({
        **to_dict(plan),
        "digest": plan.digest,
        "ranks": plan.layout.ranks,
        "peak_bytes": plan.peak.memory.total_bytes,
        "recompute": request.recompute,
        "bill": to_dict(bill) if bill else None,
        **({"changes": [to_dict(one) for one in changes]} if asks_more else {}),
        **({"alternatives": [to_dict(other) for other in others]} if others else {}),
    })  # fmt: skip
    show_plan(out, plan)
    show_bill(out, bill)
    show_candidates(out, others)
    show_changes(out, changes)
    if draws:
        show_timeline(out, plan)
    if loaded.resources.device == "auto":
        out.next("ai-cli run", target or spec)


def _write(out: Output, target: Path, text: bytes, *, yes: bool) -> None:
    from cnai.core.files import write_atomically

    if target.exists():
        out.confirm(f"overwrite {target}?", yes=yes)
    write_atomically(target, text)
    out.note(f"wrote {target}")
