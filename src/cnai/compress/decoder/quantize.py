"""From a float model to an INT8 one that is proved on validation text, or to an error.

The order is the promise: everything that can be refused is refused first; the compressed model is
written beside its target, read back from the disk and measured; only one that passes takes the
target's name. So the target is at every moment absent, the old model, or the new one, whole.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.compress.decoder.gate import measure, require
from cnai.compress.decoder.matrix import Quantizer
from cnai.compress.decoder.packed import Progress, packed_bytes, write_packed
from cnai.compress.decoder.quantizers import quantizer_for
from cnai.compress.decoder.source import open_source
from cnai.compress.manifest import write_manifest
from cnai.compress.target import check_target, claimed
from cnai.core.artifact import Artifact, Precision
from cnai.core.errors import DataError, SpecError
from cnai.core.files import folder_atomically
from cnai.core.shape import DecoderShape
from cnai.models.huggingface import load_decoder
from cnai.models.perplexity import sequence_losses

_ROWS_AT_ONCE = 8


def quantize(
    source: Path,
    target: Path,
    rows: NDArray[np.int64],
    *,
    precision: Precision = Precision.INT8,
    allowed_loss: float = 0.01,
    quantizer: Quantizer | None = None,
    progress: Progress = lambda _stage, _done, _total: None,
) -> Artifact:
    """Compress a Hugging Face folder and prove what it cost.

    Args:
        source: Folder of the float model.
        target: Folder of the new one; an artifact that stands there is replaced on success.
        rows: Validation tokens of shape (N, T + 1) that the model was not trained on.
        precision: Number format of the new weights.
        allowed_loss: Largest relative rise of the perplexity.
        quantizer: None = the one of the precision.
        progress: Called with `measure`, `quantize` or `verify`, what is done, and how much of it
            there is.

    Raises:
        SpecError: The target or an option makes no sense.
        DataError: The source or the rows cannot be used.
        RunError: The target cannot be written, is being written, or the disk is full.
        AccuracyError: The new model is worse than allowed; nothing was written.
    """
    chosen = quantizer or quantizer_for(precision)
    if not 0 <= allowed_loss < math.inf:
        raise SpecError(
            f"an allowed loss of {allowed_loss} makes no sense",
            where="compress.max_loss",
            hint="give a share from 0, for instance 0.01 for 1 %",
        )
    weights = open_source(source)
    _check_rows(rows, weights.shape)
    target = target.resolve()
    check_target(target, source=source, needed_bytes=packed_bytes(weights.shape))
    with claimed(target):
        before = _losses(source, rows, "measure", progress)
        if not np.isfinite(before).all():
            raise DataError(
                f"the perplexity of `{source}` is no number before any compression",
                where=str(source),
                hint="the training diverged; take an earlier checkpoint",
            )
        with folder_atomically(target) as folder:
            write_packed(folder, weights, chosen, progress)
            quality = measure(before, _losses(folder, rows, "verify", progress), allowed_loss)
            require(quality, where=str(source))
            return write_manifest(
                folder,
                target=target,
                source=str(source),
                precision=precision,
                shape=weights.shape,
                quality=quality,
            )


def _check_rows(rows: NDArray[np.int64], shape: DecoderShape) -> None:
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise DataError(
            f"no validation text to measure the model on: rows of shape {rows.shape}",
            where="rows",
            hint="give more text, or a larger `data.validation_fraction`",
        )
    if rows.min() < 0 or rows.max() >= shape.vocab:
        raise DataError(
            f"validation tokens run from {rows.min()} to {rows.max()}; the model knows 0 to "
            f"{shape.vocab - 1}",
            where="rows",
            hint="the text was made with the tokenizer of another model; use this model's own",
        )


def _losses(
    folder: Path, rows: NDArray[np.int64], stage: str, progress: Progress
) -> NDArray[np.float64]:
    """Measure the model in a folder as it lies on the disk."""
    decoder = load_decoder(folder)
    losses = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        progress(stage, start, len(rows))
        part = rows[start : start + _ROWS_AT_ONCE]
        losses.append(sequence_losses(decoder, part, batch=_ROWS_AT_ONCE))
    progress(stage, len(rows), len(rows))
    return np.concatenate(losses)
