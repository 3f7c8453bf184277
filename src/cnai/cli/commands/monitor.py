"""`ai-cli monitor`: the measures of a run for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command("monitor", examples=["ai-cli monitor runs/quickstart --port 9460"])
@run_argument
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9460, help="Port of /metrics; 0 = any free."
)
def verb(out: Output, run: Path, port: int) -> None:
    """Serve /metrics of a running or finished run until Ctrl-C."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.monitor import export_metrics

    def tell(url: str) -> None:
        out.record({"url": url})
        out.note(f"metrics of {run} at {url}; Ctrl-C ends it")

    export_metrics(RunFolder.existing(run), port, on_ready=tell)
