"""`ai-cli train`: the text packed and the model trained, to its last step."""

from __future__ import annotations

from pathlib import Path

from cnai.cli.framework import command
from cnai.cli.options import dry_run_flag, fresh_flag, on_option, spec_options, yes_flag
from cnai.cli.output import Output


@command("train", examples=["ai-cli train run.yaml -y", "ai-cli train run.yaml --dry-run"])
@spec_options
@on_option
@yes_flag
@dry_run_flag
@fresh_flag
def verb(
    out: Output,
    spec: Path,
    sets: tuple[str, ...],
    *,
    on: str | None,
    yes: bool,
    dry_run: bool,
    fresh: bool,
) -> None:
    """Train a model, or go on with a training that was interrupted."""
    from cnai.cli.asking import planned, spec_to_train

    loaded = spec_to_train(spec, sets, on=on, fresh=fresh)
    plan = planned(out, loaded, yes=yes, dry_run=dry_run)
    if plan is None:
        return
    from cnai.cli.screen import screen
    from cnai.flows.beginning import Beginning
    from cnai.flows.folder import opened_run

    with opened_run(loaded, fresh=fresh) as run, screen(out) as listener:
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
