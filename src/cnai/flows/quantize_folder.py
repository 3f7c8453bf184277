"""`ai-cli quantize` for folders: a model made small, behind the gate where it can be run."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import psutil

from cnai.compress import check_target
from cnai.compress.folder import FolderWish, form_of
from cnai.compress.folder.unmeasured import open_folder, quantize_unmeasured
from cnai.core.artifact import Artifact
from cnai.core.errors import DataError
from cnai.core.llama_config import shape_from_config
from cnai.core.runfolder import RunFolder
from cnai.core.units import format_bytes
from cnai.flows.folder_options import FolderOptions, told
from cnai.flows.listener import Listener

_MODELS_IN_MEMORY = 3
_FLOAT32_BYTES = 4


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
    why = None if is_run else _why_unmeasured(source, options)
    if why is None:
        return _measured(source, target, options, listener)
    listener.warn(f"not measured: {why}")
    listener.stage("quantize")
    wish = FolderWish(
        form=form_of(options.precision),
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
