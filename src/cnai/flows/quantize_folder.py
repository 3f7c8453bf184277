"""`ai-cli quantize` for folders: a model made small, behind the gate where it can be run."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from cnai.compress import check_target
from cnai.compress.folder import FolderWish, Form
from cnai.compress.folder.unmeasured import open_folder, quantize_unmeasured
from cnai.core.artifact import Artifact
from cnai.core.errors import DataError
from cnai.core.llama_config import shape_from_config
from cnai.core.runfolder import RunFolder
from cnai.core.units import format_bytes, format_seconds
from cnai.flows.listener import Listener

_CALIBRATION_FORMS = {"int4": Form.W4A16, "fp8": Form.FP8, "bf16": Form.BF16, "fp16": Form.FP16}
_FORMS = {"int4": Form.W4A16, "fp8": Form.FP8, "bf16": Form.BF16, "fp16": Form.FP16}
_MODELS_IN_MEMORY = 3
_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """What the user wants of a folder.

    Attributes:
        precision: `int8`, `int4`, `fp8`, `bf16`, `fp16` or `auto`.
        max_loss: Largest relative rise of the perplexity.
        data: Text to measure on; None = the run's own validation split, or for a folder that no
            run made the docstrings of this Python.
        embeddings: Embedding and head become INT8 too.
        ignore: Regular expression; tensors whose name it finds stay as they are.
        budget_s: Seconds after which only safe forms are tried.
        measured: False = the weights are rounded and the model is not run.
        command: The command line, for the report.
    """

    precision: str = "int8"
    max_loss: float = 0.01
    data: str | None = None
    embeddings: bool = False
    ignore: str | None = None
    budget_s: float | None = None
    measured: bool = True
    command: str = ""


def quantize_folder(
    source: Path, target: Path, options: FolderOptions, listener: Listener
) -> Artifact:
    """Quantize a model folder, or the newest checkpoint of a run.

    A model whose architecture the decoder does not know, or that does not fit into memory, is
    quantized too; then nothing is measured, and the report and a warning say so.

    Raises:
        DataError: There is no model, it is damaged or compressed already.
        SpecError: The target holds other files, or is the model itself.
        AccuracyError: It lost more than allowed; `target` is as it was, the best lies beside it.
    """
    if not source.exists():
        raise DataError(
            f"no model at `{source}`",
            where=str(source),
            hint="give a run folder, or a folder in Hugging Face layout",
        )
    run = RunFolder(source)
    is_run = run.events.is_dir()
    # Before the text is packed, which may take long; how much space is needed is asked later.
    check_target(target, needed_bytes=0, source=run.artifacts / "model" if is_run else source)
    if is_run:
        return _measured(source, target, options, listener)
    why = _why_unmeasured(source, options)
    if why is None:
        return _measured(source, target, options, listener)
    listener.warn(f"not measured: {why}")
    listener.stage("quantize")
    wish = FolderWish(
        form=_FORMS.get(options.precision, Form.W8A16),
        embeddings=options.embeddings,
        ignore=options.ignore,
    )
    return quantize_unmeasured(
        source,
        target,
        wish,
        why=f"not measured: {why}",
        command=options.command,
        progress=told(listener),
    )


def _why_unmeasured(source: Path, options: FolderOptions) -> str | None:
    """Say why a folder cannot be measured here; None when it can."""
    checkpoint = open_folder(source)
    if not options.measured:
        return "as asked"
    try:
        shape_from_config(source)
    except DataError as error:
        return error.message
    if not (source / "tokenizer.json").is_file():
        return "the folder has no tokenizer.json to read text with"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed (`pip install 'cnai[torch]'`)"
    needed = _MODELS_IN_MEMORY * _FLOAT32_BYTES * checkpoint.parameters
    free = psutil.virtual_memory().available
    if needed > free:
        return (
            f"running it in float32 takes about {format_bytes(needed)} of memory, and "
            f"{format_bytes(free)} are free"
        )
    return None


def _measured(source: Path, target: Path, options: FolderOptions, listener: Listener) -> Artifact:
    """Do the part that needs torch; a folder that is not measured does without."""
    flow = importlib.import_module("cnai.flows.quantize_measured")
    artifact: Artifact = flow.quantize_measured(source, target, options, listener)
    return artifact


def told(
    listener: Listener, clock: Callable[[], float] = time.monotonic
) -> Callable[[str, int, int], None]:
    """Return a progress that tells a listener how far a stage is, and when it ends."""
    starts: dict[str, tuple[float, int]] = {}

    def progress(stage: str, done: int, total: int) -> None:
        begun, first = starts.setdefault(stage, (clock(), done))
        if done < first or done >= total:
            starts.pop(stage)
        spent = clock() - begun
        words = stage
        if stage == "quantize" and spent >= 1 and first < done < total:
            speed = (done - first) / spent
            left = format_seconds((total - done) / speed)
            words = f"{stage} ({format_bytes(speed)}/s, {left} left)"
        listener.fraction(words, done / max(1, total))

    return progress
