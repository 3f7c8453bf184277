"""`ai-cli quantize`: a smaller model that loses at most one percent, or none at all."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cnai.cli.framework import command
from cnai.cli.options import DURATION, SHARE, dry_run_flag
from cnai.cli.output import Output
from cnai.cli.screen import screen

if TYPE_CHECKING:
    from cnai.compress import CompressionReport, DryRun, Order
    from cnai.core.artifact import Artifact
    from cnai.core.errors import SpecError


@command(
    "quantize",
    examples=[
        "ai-cli quantize --input_model model.pb --output_model model_quant.pb --precision INT8",
        "ai-cli quantize --input_model net.onnx --output_model fast.onnx --eval test.npz",
        "ai-cli quantize --input_model runs/quickstart --output_model small",
    ],
)
@click.option(
    "--input-model",
    required=True,
    type=click.Path(path_type=Path),
    help="A TensorFlow graph (.pb) or SavedModel, an ONNX or GGUF model, a model folder, a run.",
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
    type=SHARE,
    default="1%",
    show_default=True,
    help="Largest relative loss: of the metric (files), of the perplexity (folders).",
)
@click.option(
    "--data",
    help="Text to measure a folder on; else the run's own, or `pydocs`.",
)
@click.option(
    "--eval",
    "evaluation",
    metavar="DATA",
    help="Samples to judge a file by: .npz, .npy, .jsonl, a folder of them, module:function.",
)
@click.option(
    "--calib",
    "calibration",
    metavar="DATA",
    help="Samples to find ranges on; else some of `--eval`, which then do not judge.",
)
@click.option(
    "--metric",
    default="accuracy",
    show_default=True,
    help="accuracy, f1, cer, cosine or module:function; used when samples have labels.",
)
@click.option(
    "--mode",
    type=click.Choice(["auto", "weight-only", "dynamic", "static"], case_sensitive=False),
    default="auto",
    show_default=True,
    help="What INT8 is used for; forced, it is taken even if slower.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "native", "tf", "ort", "openvino"], case_sensitive=False),
    default="auto",
    show_default=True,
    help="The runtime that measures.",
)
@click.option("--inputs", default="", help="Names of the inputs that the data gives, by comma.")
@click.option("--outputs", default="", help="Names of the outputs that count, by comma.")
@click.option(
    "--budget",
    type=DURATION,
    default="10m",
    show_default=True,
    help="Time after which nothing new is tried.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Divides one set of samples.")
@click.option("--strict", is_flag=True, help="The whole interval of the loss must be allowed.")
@click.option("--ignore", help="Regular expression; weights whose name it finds stay.")
@click.option("--embeddings", is_flag=True, help="Embedding and head become INT8 too (folders).")
@click.option("--unmeasured", is_flag=True, help="Only round the weights; run nothing (folders).")
@dry_run_flag
def verb(
    out: Output,
    input_model: Path,
    output_model: Path,
    *,
    precision: str,
    max_loss: float,
    data: str | None,
    ignore: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Quantize a model, measure what it lost, and keep it only within the limit."""
    from cnai.compress import FILES, recognise

    if recognise(input_model) in FILES:
        _refuse_for_files(precision)
        wishes = {"precision": precision, "ignore": ignore}
        _file(out, input_model, output_model, wishes, _order(max_loss, options), dry_run=dry_run)
        return
    _refuse_for_folders(options["mode"])
    from cnai.flows.folder_options import FolderOptions
    from cnai.flows.quantize_folder import quantize_folder

    wanted = FolderOptions(
        precision=precision,
        max_loss=max_loss,
        data=data,
        ignore=ignore,
        embeddings=options["embeddings"],
        budget_s=options["budget"],
        measured=not options["unmeasured"],
        command=shlex.join(["ai-cli", *sys.argv[1:]]),
    )
    with screen(out) as listener:
        artifact = quantize_folder(input_model, output_model, wanted, listener)
    _show_artifact(out, artifact, output_model)


def _file(
    out: Output,
    source: Path,
    target: Path,
    wishes: dict[str, Any],
    order: Order,
    *,
    dry_run: bool,
) -> None:
    from cnai.flows.quantize_file import plan_graph, quantize_graph

    if dry_run:
        _show_plan(out, plan_graph(source, target, order=order, **wishes))
        return
    with screen(out) as listener:
        report = quantize_graph(source, target, order=order, listener=listener, **wishes)
    _show_report(out, report)


def _order(max_loss: float, options: dict[str, Any]) -> Order:
    from cnai.compress.guard import Engine, Goal, Mode, Order

    return Order(
        evaluation=options["evaluation"],
        calibration=options["calibration"],
        metric=options["metric"],
        goal=Goal(max_loss=max_loss, strict=options["strict"]),
        mode=Mode(options["mode"]),
        engine=Engine(options["engine"]),
        inputs=_names(options["inputs"]),
        outputs=_names(options["outputs"]),
        budget_seconds=options["budget"],
        seed=options["seed"],
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


_OF_FILES = {
    "evaluation": "--eval", "calibration": "--calib", "metric": "--metric", "engine": "--engine",
    "inputs": "--inputs", "outputs": "--outputs", "seed": "--seed", "strict": "--strict",
    "dry_run": "--dry-run",
}  # fmt: skip
_OF_FOLDERS = {"data": "--data", "embeddings": "--embeddings", "unmeasured": "--unmeasured"}


def _refuse_for_files(precision: str) -> None:
    """Say that an option is of folders only, instead of passing over it."""
    hint = "leave it away; a file is measured on samples, which `--eval` names"
    if precision not in {"int8", "fp16"}:
        raise _refusal("--precision", f"{precision} is for folders", "take int8 or fp16")
    for name, flag in _OF_FOLDERS.items():
        if _is_given(name):
            raise _refusal(flag, f"`{flag}` is for folders, and this is a file", hint)


def _refuse_for_folders(mode: str) -> None:
    """Say that an option is of files only, instead of passing over it."""
    hint = "leave it away; a folder is measured on text, which `--data` names"
    given = [flag for name, flag in _OF_FILES.items() if _is_given(name)]
    given += ["--mode"] if mode not in {"auto", "weight-only"} else []
    if given:
        raise _refusal(given[0], f"`{given[0]}` is for model files, and this is a folder", hint)


def _is_given(name: str) -> bool:
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def _refusal(flag: str, message: str, hint: str) -> SpecError:
    from cnai.core.errors import SpecError

    return SpecError(message, where=flag, hint=hint)


def _show_plan(out: Output, plan: DryRun) -> None:
    from cnai.compress import Scheme
    from cnai.core.units import format_bytes

    out.record(plan)
    out.table(
        ["format", "weights", "would be", "INT8", "float16", "kept", "calibrate", "judge", "try"],
        [
            [
                plan.format,
                format_bytes(plan.before_bytes),
                format_bytes(plan.after_bytes),
                str(plan.count(Scheme.INT8)),
                str(plan.count(Scheme.FLOAT16)),
                str(plan.count(Scheme.KEPT)),
                str(plan.calibration),
                str(plan.evaluation),
                ", ".join(plan.modes),
            ]
        ],
    )


def _show_report(out: Output, report: CompressionReport) -> None:
    from cnai.compress import Scheme, report_files
    from cnai.compress.report import agreement_words, quality_words, speed_words
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
                str(report.count(Scheme.INT8) + report.count(Scheme.COMPUTED)),
                str(left),
                f"{report.weight_cosine:.6f}",
                f"{report.seconds:.1f}",
            ]
        ],
    )
    if report.quality is not None:
        out.text(f"loss: {quality_words(report.quality)}")
    if report.speed is not None:
        out.text(f"speed: {speed_words(report.speed)}")
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
