"""`ai-cli run`: the whole chain, from text to an answer of the compressed model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnai.cli.framework import command
from cnai.cli.options import (
    dry_run_flag,
    fresh_flag,
    monitor_flag,
    on_option,
    spec_options,
    yes_flag,
)
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.spec import RunSpec
    from cnai.flows.run import RunSummary


@command("run", examples=["ai-cli run run.yaml -y", "ai-cli run run.yaml -y --keep"])
@spec_options
@on_option
@yes_flag
@dry_run_flag
@fresh_flag
@monitor_flag
@click.option("--keep", is_flag=True, help="Stay up and serve the model at the end.")
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
    keep: bool,
) -> None:
    """Plan, train, evaluate, compress and serve a model.

    Stages that an earlier command finished are not done again.
    """
    from cnai.cli.asking import planned, spec_to_train

    loaded = spec_to_train(spec, sets, on=on, fresh=fresh)
    plan = planned(out, loaded, yes=yes, dry_run=dry_run)
    if plan is None:
        return
    from cnai.cli.screen import screen
    from cnai.flows.folder import opened_run
    from cnai.flows.panel import panel_beside
    from cnai.flows.run import run_chain

    with (
        opened_run(loaded, fresh=fresh) as run,
        screen(out) as listener,
        panel_beside(run, listener, wanted=monitor),
    ):
        summary = run_chain(loaded, run, plan, listener)
    out.record(summary)
    show_summary(out, summary)
    if keep:
        _keep(out, loaded, summary)
    elif summary.servable:
        out.next("ai-cli serve", summary.servable)


def show_summary(out: Output, summary: RunSummary) -> None:
    """Print what a run found, and where it lies."""
    from cnai.core.units import format_bytes, format_seconds

    train, found = summary.train, summary.evaluation
    rows = [
        ["layout", summary.layout],
        ["loss", f"{train.first_loss:.3f} -> {train.loss:.3f} in {train.steps} steps"],
        ["tokens/s", f"{train.tokens_per_second:.0f}"],
        ["restarts", str(train.restarts)],
        *([measure, value] for measure, value in found.rows()),
    ]
    if summary.model is not None:
        rows.append(
            ["FP32 model", f"{format_bytes(summary.model.size_bytes)}  {summary.model.path}"]
        )
    if summary.compressed is not None:
        small = summary.compressed
        rows.append(
            [f"{small.precision.upper()} model", f"{format_bytes(small.size_bytes)}  {small.path}"]
        )
        if small.quality is not None:
            quality = small.quality
            rows.append(
                [
                    f"{small.precision.upper()} perplexity",
                    f"{quality.before:.2f} -> {quality.after:.2f}: {quality.relative_loss:+.3%} "
                    f"[{quality.low:+.3%}, {quality.high:+.3%}], "
                    f"allowed {quality.allowed_loss:.1%}",
                ]
            )
    if summary.answer is not None:
        rows.append(["asked", summary.answer.prompt])
        rows.append(["answered", " ".join(summary.answer.text.split())])
    rows.append(
        [
            "time",
            ", ".join(
                f"{stage} {format_seconds(seconds)}"
                for stage, seconds in summary.stage_seconds.items()
            ),
        ]
    )
    rows.append(["run folder", summary.run])
    out.table(["what", "found"], rows)


def _keep(out: Output, spec: RunSpec, summary: RunSummary) -> None:
    from cnai.core.errors import SpecError
    from cnai.flows.serve import serve_model

    if summary.servable is None:
        raise SpecError(
            "there is no model to serve",
            where="--keep",
            hint="a module of your own is trained, but not exported",
        )
    serve_model(
        Path(summary.servable),
        host=spec.serve.host,
        port=spec.serve.port,
        max_tokens=spec.serve.max_tokens,
        on_ready=lambda url: out.note(f"serving {summary.servable} at {url}; Ctrl-C ends it"),
    )
