"""`ai-cli stop`: ask a run to save a checkpoint and end."""

from __future__ import annotations

from pathlib import Path

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command("stop", examples=["ai-cli stop runs/quickstart"])
@run_argument
def verb(out: Output, run: Path) -> None:
    """Ask a run to finish its step, save a checkpoint and end."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.train import stop_run

    owner = stop_run(RunFolder.existing(run))
    out.record({"run": str(run), "process": owner})
    out.text(f"run {run} is not running" if owner is None else f"asked process {owner} to stop")
    if owner is not None:
        out.next("ai-cli watch", run)
