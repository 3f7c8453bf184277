"""`ai-cli watch`: how a run stands, live."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command("watch", examples=["ai-cli watch runs/quickstart", "ai-cli watch runs/quickstart --once"])
@run_argument
@click.option("--once", is_flag=True, help="Show how it stands now, and end.")
def verb(out: Output, run: Path, *, once: bool) -> None:
    """Follow a run until it ends: loss, tokens a second, ranks, time left.

    With --json the state of this moment is printed.
    """
    from cnai.cli.screen import screen, training_line
    from cnai.core.runfolder import RunFolder
    from cnai.flows.monitor import follow_run, progress_of

    folder = RunFolder.existing(run)
    if once or out.as_json:
        progress = progress_of(folder)
        out.record(progress)
        out.text(training_line(progress))
        return
    with screen(out) as listener:
        last = follow_run(folder, listener)
    out.text(training_line(last))
