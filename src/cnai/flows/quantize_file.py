"""`ai-cli quantize` for files: a graph made small, whatever framework it is of."""

from __future__ import annotations

import shlex
from pathlib import Path

from cnai.compress import CompressionReport, Scheme, Wishes, quantize_file
from cnai.flows.listener import Listener


def quantize_graph(
    source: Path, target: Path, *, precision: str, ignore: str | None, listener: Listener
) -> CompressionReport:
    """Make the weights of a frozen TensorFlow graph or an ONNX model smaller.

    Args:
        precision: `int8`, or `fp16` for a plain cast.
        ignore: Regular expression of weights to leave alone.

    Raises:
        SpecError: The model has nothing to quantize or is quantized already, or the target or the
            expression makes no sense.
        DataError: The model is missing or damaged.
        RunError: The target cannot be written.
    """
    words = ["--input_model", str(source), "--output_model", str(target)]
    words += ["--precision", precision.upper(), *(["--ignore", ignore] if ignore else [])]
    scheme = Scheme.FLOAT16 if precision == "fp16" else Scheme.INT8
    stages: set[str] = set()

    def progress(stage: str, done: int, total: int) -> None:
        if stage not in stages:
            stages.add(stage)
            listener.stage(stage)
        listener.fraction(stage, done / max(1, total))

    return quantize_file(
        source,
        target,
        Wishes(scheme=scheme, ignore=ignore),
        command=f"ai-cli quantize {shlex.join(words)}",
        progress=progress,
    )
