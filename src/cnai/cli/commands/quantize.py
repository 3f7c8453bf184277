"""`ai-cli quantize`: a smaller model that loses at most one percent, or none at all."""

from __future__ import annotations

from pathlib import Path

import click

from cnai.cli.framework import command
from cnai.cli.output import Output
from cnai.cli.screen import screen


@command(
    "quantize",
    examples=[
        "ai-cli quantize --input_model runs/quickstart --output_model small --precision INT8",
    ],
)
@click.option(
    "--input-model",
    required=True,
    type=click.Path(path_type=Path),
    help="A run folder, or a model folder in Hugging Face layout.",
)
@click.option(
    "--output-model", required=True, type=click.Path(path_type=Path), help="Folder to write."
)
@click.option(
    "--precision",
    type=click.Choice(["int8"], case_sensitive=False),
    default="int8",
    help="Number format of the weights.",
)
@click.option(
    "--max-loss",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.01,
    show_default=True,
    help="Largest relative rise of the perplexity.",
)
@click.option(
    "--data",
    help="Text to measure on: a file or a folder; else the run's own, or for a folder `pydocs`.",
)
def verb(
    out: Output,
    input_model: Path,
    output_model: Path,
    *,
    precision: str,
    max_loss: float,
    data: str | None,
) -> None:
    """Quantize a model, measure what it lost, and keep it only within the limit."""
    from cnai.core.units import format_bytes
    from cnai.flows.quantize import quantize_model

    with screen(out) as listener:
        artifact = quantize_model(
            input_model, output_model, max_loss=max_loss, data=data, listener=listener
        )
    out.record(artifact)
    quality = artifact.quality
    if quality is not None:
        out.table(
            ["precision", "size", quality.metric, "loss", "95 % interval", "allowed"],
            [
                [
                    precision.upper(),
                    format_bytes(artifact.size_bytes),
                    f"{quality.before:.3f} -> {quality.after:.3f}",
                    f"{quality.relative_loss:+.3%}",
                    f"{quality.low:+.3%} to {quality.high:+.3%}",
                    f"{quality.allowed_loss:.1%}",
                ]
            ],
        )
    out.next("ai-cli serve", output_model)
