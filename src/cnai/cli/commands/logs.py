"""`ai-cli logs`: what the ranks printed."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command(
    "logs",
    examples=[
        "ai-cli logs runs/quickstart",
        "ai-cli logs runs/quickstart --rank 3",
        "ai-cli logs runs/quickstart --follow",
    ],
)
@run_argument
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank.")
@click.option("--lines", type=click.IntRange(min=1), default=50, help="Last lines of each log.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what the ranks print.")
def verb(out: Output, run: Path, rank: int | None, lines: int, *, follow: bool) -> None:
    """Print the last lines of the logs of a run, with the rank before each.

    With --json the lines of this moment are printed.
    """
    from cnai.core.runfolder import RunFolder
    from cnai.flows.logs import follow_logs, last_lines

    folder = RunFolder.existing(run)
    found = last_lines(folder, rank=rank, lines=lines)
    out.record({"logs": found})
    for name, text in found.items():
        for line in text:
            out.text(f"[{name}] {line}")
    if follow and not out.as_json:
        for name, line in follow_logs(folder, rank=rank):
            out.text(f"[{name}] {line}")
