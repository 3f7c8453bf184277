"""`ai-cli quantize` for folders: a decoder made small behind the gate of its perplexity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.compress import check_target
from cnai.compress.decoder import open_source, quantize
from cnai.core.artifact import Artifact
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import DataError
from cnai.core.llama_config import shape_from_config
from cnai.core.runfolder import RunFolder
from cnai.data import DatasetReader, PrepareOptions, open_store, prepare
from cnai.flows.compress import export_run
from cnai.flows.data import reader_of_run, store_of
from cnai.flows.evaluate import validation_rows
from cnai.flows.folder import spec_of
from cnai.flows.listener import Listener
from cnai.flows.stages import recorded

_ROWS = 64
_TOKENS = 128


def quantize_folder(
    source: Path, target: Path, *, max_loss: float, data: str | None, listener: Listener
) -> Artifact:
    """Quantize a model folder, or the newest checkpoint of a run.

    Args:
        max_loss: Largest relative rise of the perplexity.
        data: Text to measure on; None = the run's own validation split, or for a folder that no
            run made the docstrings of this Python.

    Raises:
        DataError: There is no model, or of a kind that is not read.
        SpecError: The target holds other files, or is the model itself.
        AccuracyError: It lost more than allowed; `target` is as it was.
    """
    if not source.exists():
        raise DataError(
            f"no model at `{source}`",
            where=str(source),
            hint="give a run folder, or a Llama folder in Hugging Face layout",
        )
    run = RunFolder(source)
    is_run = run.events.is_dir()
    # Before the text is packed, which may take long; how much space is needed is asked later.
    check_target(target, needed_bytes=0, source=run.artifacts / "model" if is_run else source)
    if is_run:
        folder, rows = _of_run(run, data, listener)
    else:
        open_source(source)
        folder, rows = source, _rows_of_text(source, data or "pydocs", listener)
    return quantize(
        folder,
        target,
        rows,
        allowed_loss=max_loss,
        progress=lambda stage, done, total: listener.fraction(stage, done / max(1, total)),
    )


def _of_run(run: RunFolder, data: str | None, listener: Listener) -> tuple[Path, NDArray[np.int64]]:
    spec = spec_of(run)
    manifest = recorded(run, "data", DatasetManifest)
    listener.stage("export")
    folder = Path(export_run(spec, run, manifest, store_of(spec, run)).path)
    if data is not None:
        return folder, _rows_of_text(folder, data, listener)
    listener.stage("quantize")
    return folder, validation_rows(spec, reader_of_run(spec, run, manifest))


def _rows_of_text(folder: Path, data: str, listener: Listener) -> NDArray[np.int64]:
    """Pack text with the model's own tokenizer, in memory, and return its validation rows."""
    shape = shape_from_config(folder)
    options = PrepareOptions(
        tokenizer=folder / "tokenizer.json",
        vocab=shape.vocab,
        sequence=min(shape.sequence, _TOKENS),
    )
    listener.stage("data")
    store = open_store("memory://quantize")
    manifest = prepare(data, store, options=options, progress=listener.fraction)
    reader = DatasetReader(store, manifest, folder / "unused", batch=1, seed=0)
    listener.stage("quantize")
    return reader.validation(_ROWS)
