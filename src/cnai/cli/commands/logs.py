"""`ai-cli logs`: what the ranks printed."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command("logs", examples=["ai-cli logs runs/quickstart", "ai-cli logs runs/quickstart --rank 3"])
@run_argument
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--lines", type=click.IntRange(min=1), default=50, help="Last lines of each log.")
def verb(out: Output, run: Path, rank: int | None, lines: int) -> None:
    """Print the last lines of the logs of a run, with the rank before each."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.logs import last_lines

    found = last_lines(RunFolder.existing(run), rank=rank, lines=lines)
    out.record({"logs": found})
    for name, text in found.items():
        for line in text:
            out.text(f"[{name}] {line}")
