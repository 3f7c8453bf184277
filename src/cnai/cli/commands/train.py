"""`ai-cli train`: the text packed and the model trained, to its last step."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import (
    dry_run_flag,
    fresh_flag,
    monitor_flag,
    on_option,
    read_spec,
    spec_options,
    yes_flag,
)
from cnai.cli.output import Output


@command(
    "train",
    examples=[
        "ai-cli train run.yaml -y",
        "ai-cli train run.yaml --dry-run",
        "ai-cli train run.yaml --dry-run --world 1024",
    ],
)
@spec_options
@on_option
@yes_flag
@dry_run_flag
@fresh_flag
@monitor_flag
@click.option(
    "--world",
    type=click.IntRange(min=1),
    help="With --dry-run: split and shard the model for so many ranks, without memory.",
)
def verb(
    out: Output,
    spec: Path,
    sets: tuple[str, ...],
    *,
    on: str | None,
    yes: bool,
    dry_run: bool,
    fresh: bool,
    monitor: bool,
    world: int | None,
) -> None:
    """Train a model, or go on with a training that was interrupted."""
    if world is not None:
        rehearse(out, spec, (*sets, f"resources.ranks={world}"), dry_run=dry_run)
        return
    from cnai.cli.asking import planned, spec_to_train

    loaded = spec_to_train(spec, sets, on=on, fresh=fresh)
    plan = planned(out, loaded, yes=yes, dry_run=dry_run)
    if plan is None:
        return
    from cnai.cli.screen import screen
    from cnai.flows.beginning import Beginning
    from cnai.flows.folder import opened_run
    from cnai.flows.panel import panel_beside

    with (
        opened_run(loaded, fresh=fresh) as run,
        screen(out) as listener,
        panel_beside(run, listener, wanted=monitor),
    ):
        beginning = Beginning(loaded, run, listener)
        result = beginning.train(plan, beginning.data())
    out.record(result)
    out.table(
        ["run", "steps", "loss", "tokens/s", "checkpoint"],
        [
            [
                str(run.root),
                str(result.steps),
                f"{result.first_loss:.3f} -> {result.loss:.3f}",
                f"{result.tokens_per_second:.0f}",
                result.checkpoint,
            ]
        ],
    )
    out.next("ai-cli eval", run.root)


def rehearse(out: Output, spec: Path, sets: tuple[str, ...], *, dry_run: bool) -> None:
    """Build the layout of a spec without memory, and print what each rank would hold."""
    from cnai.cli.plan_page import show_plan
    from cnai.core.errors import SpecError
    from cnai.core.units import format_bytes, format_count
    from cnai.flows.plan import plan_run
    from cnai.flows.rehearse import rehearse_run

    if not dry_run:
        raise SpecError("`--world` goes with `--dry-run`", where="--world", hint="add `--dry-run`")
    loaded = read_spec(spec, sets).spec
    found = rehearse_run(loaded, plan_run(loaded))
    out.record(found)
    show_plan(out, found.plan)
    out.table(
        ["place", "stages", "parameters of its stages", "on a rank", "memory planned"],
        [
            [
                str(one.pipeline),
                ", ".join(map(str, one.stages)),
                format_count(one.whole_parameters),
                format_count(one.parameters),
                format_bytes(memory),
            ]
            for one, memory in zip(found.ranks, found.memory_bytes, strict=True)
        ],
    )
    out.note(f"built without memory in {found.seconds:.1f} s")
