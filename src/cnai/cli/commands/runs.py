"""`ai-cli runs`: the runs and how far they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnai.cli.framework import command
from cnai.cli.output import Output

if TYPE_CHECKING:
    from cnai.core.runs import RunState


@command("runs", examples=["ai-cli runs", "ai-cli runs runs --json"])
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
def verb(out: Output, folder: Path) -> None:
    """List the runs and how far they are.

    FOLDER is the one that holds the run folders, `runs` when it is left out.
    """
    from cnai.core.runs import list_runs

    states = list_runs(folder)
    out.record({"folder": str(folder), "runs": states})
    if states:
        columns = ["name", "state", "step", "loss", "layout", "started"]
        out.table(columns, [_row(state) for state in states])
    else:
        out.note(f"no runs in `{folder}`")
        out.hint("start one with `ai-cli run SPEC`, or name another folder")


def _row(state: RunState) -> tuple[str, ...]:
    loss = "-" if state.loss is None else f"{state.loss:.4f}"
    started = "-"
    if state.started_unix is not None:
        local = dt.datetime.fromtimestamp(state.started_unix).astimezone()
        started = f"{local:%Y-%m-%d %H:%M}"
    return (
        state.name, str(state.status), f"{state.step}/{state.steps}", loss,
        state.layout or "-", started,
    )  # fmt: skip
