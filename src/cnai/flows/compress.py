"""From a checkpoint to a model folder that others load, and to a smaller one behind the gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.compress.decoder import Guard, export, quantize
from cnai.core.artifact import Artifact
from cnai.core.batches import BatchReader
from cnai.core.blobs import BlobStore
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.flows.evaluate import checkpoint_step, validation_rows
from cnai.flows.model import trained_state
from cnai.flows.shape import shape_of

_CALIBRATION_ROWS = 8


def export_run(
    spec: RunSpec,
    run: RunFolder,
    manifest: DatasetManifest,
    store: BlobStore,
    *,
    step: int | None = None,
    target: Path | None = None,
) -> Artifact:
    """Write a checkpoint as a model folder in Hugging Face layout, with its tokenizer.

    Args:
        step: Its step; None = the newest.
        target: The folder; None = `artifacts/model` of the run.

    Raises:
        DataError: There is no checkpoint, it is damaged, or the model is a user's own module.
    """
    shape = shape_of(spec)
    if shape is None:
        raise DataError(
            f"run `{run.name}` trained the module `{spec.model.module}`, which is not exported",
            where=str(run.spec_file),
            hint="only decoders described by their shape or a model folder can be exported",
        )
    chosen = checkpoint_step(run, step)
    checkpoint = run.checkpoint(chosen)
    return export(
        target or run.artifacts / "model",
        shape,
        trained_state(spec, shape, checkpoint),
        store.get(manifest.tokenizer),
        source=str(checkpoint.relative_to(run.root)),
    )


def compress_run(spec: RunSpec, run: RunFolder, reader: BatchReader) -> Artifact:
    """Quantize the exported model and measure what it lost.

    Raises:
        AccuracyError: It lost more than `compress.max_loss`; the best lies beside its place.
    """
    return quantize(
        run.artifacts / "model",
        compressed_path(spec, run),
        validation_rows(spec, reader),
        guard=Guard(precision=spec.compress.precision, allowed_loss=spec.compress.max_loss),
        calibration=calibration_rows(spec, reader),
    )


def calibration_rows(spec: RunSpec, reader: BatchReader) -> NDArray[np.int64]:
    """Return rows of the training text on which forms are chosen: never those of a measurement."""
    batch = spec.train.batch
    steps = range(-(-_CALIBRATION_ROWS // batch))
    return np.concatenate([reader.rows(step, 0, batch) for step in steps])[:_CALIBRATION_ROWS]


def compressed_path(spec: RunSpec, run: RunFolder) -> Path:
    """Return where the compressed model lies."""
    return run.artifacts / f"model-{spec.compress.precision}"
