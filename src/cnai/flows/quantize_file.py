"""`ai-cli quantize` for files: a graph made small, whatever framework it is of."""

from __future__ import annotations

import shlex
from pathlib import Path

from cnai.compress import (
    CompressionReport,
    DryRun,
    Order,
    Scheme,
    Wishes,
    dry_run,
    quantize_file,
)
from cnai.flows.listener import Listener

_DEFAULTS = Order()


def quantize_graph(
    source: Path,
    target: Path,
    *,
    precision: str,
    ignore: str | None,
    listener: Listener,
    order: Order = _DEFAULTS,
) -> CompressionReport:
    """Make a frozen TensorFlow graph or an ONNX model smaller, and faster where data allows.

    Args:
        precision: `int8`, or `fp16` for a plain cast.
        ignore: Regular expression of weights to leave alone.
        order: Data to measure on, and what to try.

    Raises:
        SpecError: The model has nothing to quantize or is quantized already, or the target, the
            order or the expression makes no sense.
        DataError: The model or the data is missing or damaged.
        RunError: The target cannot be written.
        AccuracyError: The goal is missed; the best model stands beside the target.
    """
    stages: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in stages:
            stages.add(stage)
            listener.stage(stage)
        listener.fraction(stage, done / max(1, total))

    return quantize_file(
        source,
        target,
        wishes_of(precision, ignore),
        order=order,
        command=command_of(source, target, precision=precision, ignore=ignore, order=order),
        progress=progress,
    )


def plan_graph(
    source: Path, target: Path, *, precision: str, ignore: str | None, order: Order
) -> DryRun:
    """Tell what `quantize_graph` would do."""
    return dry_run(source, target, wishes_of(precision, ignore), order)


def wishes_of(precision: str, ignore: str | None) -> Wishes:
    """Return what the weights should become."""
    scheme = Scheme.FLOAT16 if precision == "fp16" else Scheme.INT8
    return Wishes(scheme=scheme, ignore=ignore)


def command_of(
    source: Path, target: Path, *, precision: str, ignore: str | None, order: Order
) -> str:
    """Return the command line that does the same again."""
    words = ["--input_model", str(source), "--output_model", str(target)]
    words += ["--precision", precision.upper()]
    given: dict[str, object] = {
        "--ignore": ignore,
        "--eval": order.evaluation,
        "--calib": order.calibration,
        "--inputs": ",".join(order.inputs),
        "--outputs": ",".join(order.outputs),
    }
    settings: dict[str, tuple[object, object]] = {
        "--metric": (order.metric, _DEFAULTS.metric),
        "--max-loss": (order.goal.max_loss, _DEFAULTS.goal.max_loss),
        "--mode": (order.mode, _DEFAULTS.mode),
        "--engine": (order.engine, _DEFAULTS.engine),
        "--budget": (order.budget_seconds, _DEFAULTS.budget_seconds),
        "--seed": (order.seed, _DEFAULTS.seed),
    }
    given |= {name: value for name, (value, usual) in settings.items() if value != usual}
    for name, value in given.items():
        words += [name, str(value)] if value not in {None, ""} else []
    words += ["--strict"] if order.goal.strict else []
    return f"ai-cli quantize {shlex.join(words)}"
