"""`ai-cli quantize`: a smaller model that loses at most one percent, or none at all."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cnai.cli.framework import command
from cnai.cli.output import Output
from cnai.cli.screen import screen

if TYPE_CHECKING:
    from cnai.compress import CompressionReport
    from cnai.core.artifact import Artifact


@command(
    "quantize",
    examples=[
        "ai-cli quantize --input_model model.pb --output_model model_quant.pb --precision INT8",
        "ai-cli quantize --input_model runs/quickstart --output_model small",
    ],
)
@click.option(
    "--input-model",
    required=True,
    type=click.Path(path_type=Path),
    help="A TensorFlow graph (.pb), an ONNX model, a Hugging Face folder or a run.",
)
@click.option(
    "--output-model",
    required=True,
    type=click.Path(path_type=Path),
    help="What to write: a file for a file, a folder for a folder.",
)
@click.option(
    "--precision",
    type=click.Choice(["int8", "fp16", "int4", "fp8", "bf16", "auto"], case_sensitive=False),
    default="int8",
    help="Number format of the weights; files take int8 or fp16. auto: activations too.",
)
@click.option(
    "--max-loss",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.01,
    show_default=True,
    help="Largest relative rise of the perplexity (folders).",
)
@click.option(
    "--data",
    help="Text to measure a folder on; else the run's own, or `pydocs`.",
)
@click.option("--ignore", help="Regular expression; weights whose name it finds stay.")
@click.option("--embeddings", is_flag=True, help="Embedding and head become INT8 too (folders).")
@click.option(
    "--budget",
    type=click.FloatRange(0),
    help="Seconds after which only safe forms are tried (folders).",
)
@click.option("--unmeasured", is_flag=True, help="Only round the weights; run nothing (folders).")
def verb(
    out: Output,
    input_model: Path,
    output_model: Path,
    *,
    precision: str,
    max_loss: float,
    data: str | None,
    ignore: str | None,
    **wishes: Any,
) -> None:
    """Quantize a model, measure what it lost, and keep it only within the limit."""
    from cnai.compress import FILES, recognise

    kind = recognise(input_model)
    if kind in FILES and precision not in {"int8", "fp16"}:
        raise click.BadParameter(
            f"a file becomes int8 or fp16; {precision} is for folders", param_hint="--precision"
        )
    with screen(out) as listener:
        if kind in FILES:
            from cnai.flows.quantize_file import quantize_graph

            report = quantize_graph(
                input_model, output_model, precision=precision, ignore=ignore, listener=listener
            )
        else:
            from cnai.flows.quantize_folder import FolderOptions, quantize_folder

            options = FolderOptions(
                precision=precision,
                max_loss=max_loss,
                data=data,
                ignore=ignore,
                embeddings=wishes["embeddings"],
                budget_s=wishes["budget"],
                measured=not wishes["unmeasured"],
                command=shlex.join(["ai-cli", *sys.argv[1:]]),
            )
            artifact = quantize_folder(input_model, output_model, options, listener)
    if kind in FILES:
        _show_report(out, report)
    else:
        _show_artifact(out, artifact, output_model)


def _show_report(out: Output, report: CompressionReport) -> None:
    from cnai.compress import Scheme, agreement_words, report_files
    from cnai.core.units import format_bytes

    out.record(report)
    left = report.count(Scheme.KEPT) + report.count(Scheme.FLOAT16)
    out.table(
        ["format", "before", "after", "smaller", "INT8", "other", "cosine of weights", "seconds"],
        [
            [
                report.format,
                format_bytes(report.before_bytes),
                format_bytes(report.after_bytes),
                f"{report.ratio:.2f} x",
                str(report.count(Scheme.INT8)),
                str(left),
                f"{report.weight_cosine:.6f}",
                f"{report.seconds:.1f}",
            ]
        ],
    )
    if report.agreement is not None:
        out.text(f"outputs agree: {agreement_words(report.agreement)}")
    for note in report.notes:
        out.note(f"note: {note}")
    out.next("less", report_files(Path(report.target))[1])


def _show_artifact(out: Output, artifact: Artifact, place: Path) -> None:
    from cnai.core.units import format_bytes

    out.record(artifact)
    quality = artifact.quality
    if quality is not None:
        out.table(
            ["precision", "size", quality.metric, "loss", "95 % interval", "allowed"],
            [
                [
                    artifact.precision.upper(),
                    format_bytes(artifact.size_bytes),
                    f"{quality.before:.3f} -> {quality.after:.3f}",
                    f"{quality.relative_loss:+.3%}",
                    f"{quality.low:+.3%} to {quality.high:+.3%}",
                    f"{quality.allowed_loss:.1%}",
                ]
            ],
        )
    else:
        out.table(
            ["precision", "size", "perplexity"],
            [[artifact.precision.upper(), format_bytes(artifact.size_bytes), "not measured"]],
        )
    out.next("less", place / "report.md")
    if quality is not None:
        out.next("ai-cli serve", place)
