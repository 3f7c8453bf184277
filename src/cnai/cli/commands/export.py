"""`ai-cli export`: a checkpoint as a folder that others load."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command(
    "export",
    examples=[
        "ai-cli export runs/quickstart --output model",
        "ai-cli export runs/quickstart --output model --step 100",
    ],
)
@run_argument
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to write.")
@click.option("--step", type=click.IntRange(min=1), help="Checkpoint to write; the newest else.")
def verb(out: Output, run: Path, output: Path, step: int | None) -> None:
    """Write a checkpoint of a run as a model folder in Hugging Face layout.

    Every number is read back from the disk and compared before the folder takes its name.
    """
    from cnai.core.runfolder import RunFolder
    from cnai.core.units import format_bytes, format_count
    from cnai.flows.export import export_again

    artifact = export_again(RunFolder.existing(run), output, step=step)
    out.record(artifact)
    out.table(
        ["model", "from", "parameters", "size"],
        [
            [
                artifact.path,
                artifact.source,
                format_count(artifact.parameters),
                format_bytes(artifact.size_bytes),
            ]
        ],
    )
    out.next("ai-cli serve", output)
