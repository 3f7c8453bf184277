"""`ai-cli eval`: what a checkpoint is worth on text that it has not seen."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.options import run_argument
from cnai.cli.output import Output


@command("eval", examples=["ai-cli eval runs/quickstart", "ai-cli eval runs/quickstart --step 100"])
@run_argument
@click.option("--step", type=click.IntRange(min=1), help="Checkpoint to measure; the newest else.")
def verb(out: Output, run: Path, step: int | None) -> None:
    """Measure perplexity and bits per byte of a checkpoint on the validation split."""
    from cnai.core.runfolder import RunFolder
    from cnai.flows.evaluate import evaluate_again

    found = evaluate_again(RunFolder.existing(run), step=step)
    out.record(found)
    if found.perplexity is None or found.bits_per_byte is None:
        out.table(["measure", "found"], [list(row) for row in found.rows()])
        return
    out.table(
        ["step", "sequences", "perplexity", "untrained", "bits/byte", "trigram bits/byte"],
        [
            [
                str(found.step),
                str(found.sequences),
                f"{found.perplexity:.2f}",
                f"{found.perplexity_before:.0f}",
                f"{found.bits_per_byte:.3f}",
                f"{found.trigram_bits_per_byte:.3f}",
            ]
        ],
    )
    out.next("ai-cli quantize --input-model", run, "--output-model", f"{run.name}-int8")
