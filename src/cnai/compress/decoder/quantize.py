"""From a float model to a smaller one that is proved on text, or to an error with the best beside.

The order is the promise: everything that can be refused is refused first; the new model is written
beside its target, read back from the disk and measured; only one that passes takes the target's
name. So the target is at every moment absent, the old model, or the new one, whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.compress.decoder.gate import measure, passes, refusal
from cnai.compress.decoder.ladder import GIVEN_UP, Ladder, Step
from cnai.compress.decoder.source import open_source
from cnai.compress.decoder.trial import Reference
from cnai.compress.folder import (
    Checkpoint,
    FolderWish,
    Form,
    UnfinishedFolder,
    form_of,
    select,
    size_after,
    stream,
    unfinished,
)
from cnai.compress.folder.encode import TensorReport
from cnai.compress.folder.report import Attempt, FolderReport, precision_of, write_folder_report
from cnai.compress.folder.scheme import scale_kind
from cnai.compress.manifest import write_manifest
from cnai.compress.target import check_target, claimed
from cnai.core.artifact import Artifact
from cnai.core.errors import AccuracyError, CnaiError, DataError, SpecError
from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.huggingface import HuggingFaceWeights, load_decoder
from cnai.models.perplexity import sequence_losses

_ROWS_AT_ONCE = 8

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What the user allows and wants.

    Attributes:
        precision: `int8`, `int4`, `fp8`, `bf16`, `fp16`, or `auto` for INT8 with activations in
            INT8 where that is allowed.
        allowed_loss: Largest relative rise of the perplexity.
        embeddings: Embedding and head become INT8 too.
        ignore: Regular expression; tensors whose name it finds stay as they are.
        budget_s: Seconds after which only safe forms are tried; None = as long as it takes.
        command: The command line, for the report.
    """

    precision: str = "int8"
    allowed_loss: float = 0.01
    embeddings: bool = False
    ignore: str | None = None
    budget_s: float | None = None
    command: str = ""


def quantize(
    source: Path,
    target: Path,
    rows: NDArray[np.int64],
    *,
    guard: Guard | None = None,
    calibration: NDArray[np.int64] | None = None,
    progress: Progress = lambda _stage, _done, _total: None,
) -> Artifact:
    """Compress a Hugging Face folder and prove what it cost.

    Args:
        source: Folder of the float model.
        target: Folder of the new one; an artifact that stands there is replaced on success.
        rows: Validation tokens of shape (N, T + 1) that the model was not trained on.
        calibration: Tokens on which forms are chosen; None = `rows`.
        progress: Called with `measure`, `calibrate`, `search`, `quantize` or `verify`, what is
            done, and how much of it there is.

    Raises:
        SpecError: The target or an option makes no sense.
        DataError: The source or the rows cannot be used.
        RunError: The target cannot be written, is being written, or the disk is full; what was
            finished is taken up by the next run.
        AccuracyError: Every try lost more than allowed; the best lies beside the target.
    """
    guard = guard or Guard()
    form = form_of(guard.precision)
    _check_guard(guard)
    weights, checkpoint = open_source(source), Checkpoint(source)
    _check_rows(rows, weights.shape)
    wish = FolderWish(form=form, embeddings=guard.embeddings, ignore=guard.ignore)
    chosen = select(checkpoint, wish)
    target = target.resolve()
    check_target(target, source=source, needed_bytes=size_after(checkpoint, chosen))
    with claimed(target), unfinished(target) as folder:
        work = _Work(checkpoint, weights, rows, guard, folder, progress)
        ladder = Ladder(
            weights,
            chosen,
            rows if calibration is None else calibration,
            limit=math.log1p(guard.allowed_loss),
            deadline=work.start + (math.inf if guard.budget_s is None else guard.budget_s),
            short_scales=scale_kind(checkpoint.config) == "BF16",
            progress=progress,
        )
        for step in ladder.steps(guard.precision):
            if passes(work.attempt(step).quality):
                return work.publish(target)
        raise work.failed(target)


class _Work:
    """The tries of one compression."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        weights: HuggingFaceWeights,
        rows: NDArray[np.int64],
        guard: Guard,
        folder: UnfinishedFolder,
        progress: Progress,
    ) -> None:
        self.start = time.monotonic()
        self._checkpoint = checkpoint
        self._shape = weights.shape
        self._rows = rows
        self._guard = guard
        self._folder = folder
        self._progress = progress
        self._tried: list[tuple[Step, Attempt]] = []
        self._tensors: tuple[TensorReport, ...] = ()
        exact = load_decoder(checkpoint.folder)
        self._before = _losses(exact, rows, "measure", progress)
        self._reference = Reference(exact, rows)
        if not np.isfinite(self._before).all():
            raise DataError(
                f"the perplexity of `{checkpoint.folder}` is no number before any compression",
                where=str(checkpoint.folder),
                hint="the training diverged; take an earlier checkpoint",
            )

    def attempt(self, step: Step) -> Attempt:
        """Write a choice, read it back and measure it."""
        start = time.monotonic()
        self._write(step)
        decoder = load_decoder(self._folder.path)
        after = _losses(decoder, self._rows, "verify", self._progress)
        found = Attempt(
            what=step.what,
            quality=measure(self._before, after, self._guard.allowed_loss),
            divergence=self._reference.of(decoder),
            seconds=time.monotonic() - start,
        )
        self._tried.append((step, found))
        return found

    def publish(self, place: Path) -> Artifact:
        """Describe what was written last and let it take its name."""
        step, attempt = self._tried[-1]
        report = FolderReport(
            source=str(self._checkpoint.folder),
            target=str(place),
            precision=precision_of(self._tensors),
            before_bytes=self._checkpoint.size_bytes,
            after_bytes=sum(one.after_bytes for one in self._tensors),
            tensors=self._tensors,
            quality=attempt.quality,
            divergence=attempt.divergence,
            attempts=tuple(found for _, found in self._tried),
            units=step.units,
            notes=self._notes(),
            seconds=time.monotonic() - self.start,
            command=self._guard.command,
        )
        write_folder_report(report, self._folder.path)
        artifact = write_manifest(
            self._folder.path,
            target=place,
            source=str(self._checkpoint.folder),
            precision=report.precision,
            parameters=self._shape.parameters,
            quality=attempt.quality,
            known={shard.name: shard.sha256 for shard in self._folder.finished},
        )
        self._folder.publish(place)
        return artifact

    def failed(self, target: Path) -> CnaiError:
        """Save the best try under another name and return the error that says so."""
        sound = [one for one in self._tried if math.isfinite(one[1].quality.relative_loss)]
        best = min(sound or self._tried, key=lambda one: abs(one[1].quality.relative_loss))
        error = refusal(best[1].quality, where=str(self._checkpoint.folder))
        beside = target.with_name(f"{target.name}-above-limit")
        if not sound:
            return error
        try:
            check_target(beside, needed_bytes=0)
        except SpecError:
            return error
        self._tried.remove(best)
        self._tried.append(best)
        self._write(best[0])
        self.publish(beside)
        hint = f"{error.hint}; the best that was found lies in `{beside}`"
        return AccuracyError(error.message, where=error.where, hint=hint)

    def _write(self, step: Step) -> None:
        self._tensors = stream(
            self._checkpoint, self._folder, step.chosen, lambda *at: self._progress("quantize", *at)
        )

    def _notes(self) -> tuple[str, ...]:
        kept = sum(one.form is Form.BF16 and one.reason == GIVEN_UP for one in self._tensors)
        notes = []
        if kept:
            notes.append(f"{kept} matrices stayed floats (bfloat16): rounding cost too much")
        if len(self._tried) > 1:
            notes.append(f"{len(self._tried)} choices were written and measured on the same rows")
        return tuple(notes)


def _check_guard(guard: Guard) -> None:
    if not 0 <= guard.allowed_loss < math.inf:
        raise SpecError(
            f"an allowed loss of {guard.allowed_loss} makes no sense",
            where="compress.max_loss",
            hint="give a share from 0, for instance 0.01 for 1 %",
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
    decoder: Decoder, rows: NDArray[np.int64], stage: str, progress: Progress
) -> NDArray[np.float64]:
    """Measure a model on all rows."""
    losses = []
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        progress(stage, start, len(rows))
        part = rows[start : start + _ROWS_AT_ONCE]
        losses.append(sequence_losses(decoder, part, batch=_ROWS_AT_ONCE))
    progress(stage, len(rows), len(rows))
    return np.concatenate(losses)
