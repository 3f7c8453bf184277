"""`ai-cli compare`: how far two versions of a model lie apart."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output


@command("compare", examples=["ai-cli compare model.onnx model-int8.onnx --data inputs.npz"])
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="An .npz file with an array for each input; else inputs are made up.",
)
def verb(out: Output, first: Path, second: Path, *, data: Path | None) -> None:
    """Run two versions of a model on the same inputs: agreement, sizes and speeds."""
    from cnai.compress.report import agreement_words
    from cnai.core.units import format_bytes
    from cnai.flows.inspect import compare_models

    found = compare_models(first, second, data)
    out.record(found)
    out.table(
        ["size", "smaller", "speed", "middle half of the pairs"],
        [
            [
                f"{format_bytes(found.first_bytes)} -> {format_bytes(found.second_bytes)}",
                f"{found.first_bytes / found.second_bytes:.2f} x",
                f"{found.speed:.2f} x",
                f"{found.low:.2f} to {found.high:.2f}",
            ]
        ],
    )
    out.text(f"outputs agree: {agreement_words(found.agreement)}")
    if data is None:
        out.hint("made-up inputs say nothing about accuracy; give real ones with `--data FILE.npz`")
