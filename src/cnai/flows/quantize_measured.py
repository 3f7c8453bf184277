"""The part of `ai-cli quantize` that runs decoders, and so needs torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.compress.decoder import Guard, quantize
from cnai.core.artifact import Artifact
from cnai.core.dataset import DatasetManifest
from cnai.core.llama_config import shape_from_config
from cnai.core.runfolder import RunFolder
from cnai.data import DatasetReader, PrepareOptions, open_store, prepare
from cnai.flows.compress import calibration_rows, export_run
from cnai.flows.data import reader_of_run, store_of
from cnai.flows.evaluate import validation_rows
from cnai.flows.folder import spec_of
from cnai.flows.folder_options import FolderOptions, told
from cnai.flows.listener import Listener
from cnai.flows.stages import recorded

_ROWS = 64
_CALIBRATION_ROWS = 64
_TOKENS = 128
Rows = NDArray[np.int64]


def quantize_measured(
    source: Path, target: Path, options: FolderOptions, listener: Listener
) -> Artifact:
    """Quantize a model folder, or the newest checkpoint of a run, and measure it on text.

    Raises:
        CnaiError: As in `compress.decoder.quantize`, or the run has no checkpoint.
    """
    run = RunFolder(source)
    if not run.events.is_dir():
        rows, calibration = _rows_of_text(source, options.data or "pydocs", listener)
        return _quantize(source, target, options, rows, calibration, listener)
    spec = spec_of(run)
    manifest = recorded(run, "data", DatasetManifest)
    listener.stage("export")
    folder = Path(export_run(spec, run, manifest, store_of(spec, run)).path)
    if options.data is not None:
        rows, calibration = _rows_of_text(folder, options.data, listener)
    else:
        listener.stage("quantize")
        reader = reader_of_run(spec, run, manifest)
        rows, calibration = validation_rows(spec, reader), calibration_rows(spec, reader)
    return _quantize(folder, target, options, rows, calibration, listener)


def _quantize(
    source: Path,
    target: Path,
    options: FolderOptions,
    rows: Rows,
    calibration: Rows,
    listener: Listener,
) -> Artifact:
    guard = Guard(
        precision=options.precision,
        allowed_loss=options.max_loss,
        embeddings=options.embeddings,
        ignore=options.ignore,
        budget_s=options.budget_s,
        command=options.command,
    )
    return quantize(
        source, target, rows, guard=guard, calibration=calibration, progress=told(listener)
    )


def _rows_of_text(folder: Path, data: str, listener: Listener) -> tuple[Rows, Rows]:
    """Pack text with the model's own tokenizer, in memory.

    Returns:
        Rows to measure on and rows to calibrate on, of different documents.
    """
    shape = shape_from_config(folder)
    options = PrepareOptions(
        tokenizer=folder / "tokenizer.json",
        vocab=shape.vocab,
        sequence=min(shape.sequence, _TOKENS),
    )
    listener.stage("data")
    store = open_store("memory://quantize")
    manifest = prepare(data, store, options=options, progress=listener.fraction)
    calibrating = min(_CALIBRATION_ROWS, sum(block.rows for block in manifest.train))
    reader = DatasetReader(store, manifest, folder / "unused", batch=calibrating, seed=0)
    listener.stage("quantize")
    return reader.validation(_ROWS), reader.rows(0, 0, calibrating)
