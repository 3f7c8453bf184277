"""`ai-cli eval`: what a checkpoint is worth on text that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnai.core.batches import BatchReader, row_count
from cnai.core.dataset import Dataset, DatasetManifest, IndexedDataset
from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.flows.data import reader_of_run
from cnai.flows.folder import spec_of
from cnai.flows.model import trained, untrained
from cnai.flows.module import losses_of
from cnai.flows.stages import recorded
from cnai.models import bits_per_byte, perplexity, sequence_losses
from cnai.train.measuring import measure_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Measures on the validation split; `before` is of the model that training started from.

    Attributes:
        perplexity: None where the rows are no text, as the four below.
        bits_per_byte: Independent of the tokenizer; `trigram_bits_per_byte` is what a byte trigram
            model, trained on the same documents, reaches on the same split.
        sequences: Validation rows measured.
        accuracy: Share of the targets that a user's own module hits; None where there are no
            classes, and for text.
    """

    step: int
    loss: float
    sequences: int
    perplexity: float | None = None
    perplexity_before: float | None = None
    bits_per_byte: float | None = None
    trigram_bits_per_byte: float | None = None
    loss_before: float | None = None
    accuracy: float | None = None
    accuracy_before: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return what was measured as words, a measure and its value."""
        on = f"on {self.sequences} validation {'rows' if self.perplexity is None else 'sequences'}"
        found: list[tuple[str, str]] = []
        if self.perplexity is not None and self.perplexity_before is not None:
            found.append(
                ("perplexity", f"{self.perplexity_before:.0f} -> {self.perplexity:.1f} {on}")
            )
        elif self.loss_before is not None:
            found.append(("validation loss", f"{self.loss_before:.3f} -> {self.loss:.3f} {on}"))
        if self.bits_per_byte is not None:
            floor = f" (byte trigram model: {self.trigram_bits_per_byte:.3f})"
            found.append(("bits per byte", f"{self.bits_per_byte:.3f}{floor}"))
        if self.accuracy is not None and self.accuracy_before is not None:
            found.append(("accuracy", f"{self.accuracy_before:.1%} -> {self.accuracy:.1%} {on}"))
        return found


def evaluate_run(
    spec: RunSpec,
    run: RunFolder,
    manifest: Dataset,
    reader: BatchReader,
    *,
    step: int | None = None,
) -> Evaluation:
    """Measure a checkpoint, the newest one unless a step is named.

    Raises:
        DataError: There is no such checkpoint, or it is damaged.
    """
    chosen = checkpoint_step(run, step)
    if isinstance(manifest, IndexedDataset) or spec.model.loss != "cross_entropy":
        return _of_a_module(spec, run, reader, chosen)
    rows = validation_rows(spec, reader)
    row_bytes = np.asarray(manifest.validation_row_bytes[: len(rows)], dtype=np.int64)
    before = sequence_losses(untrained(spec), rows)
    after = sequence_losses(trained(spec, run, chosen), rows)
    return Evaluation(
        step=chosen,
        loss=float(after.mean()),
        perplexity=perplexity(after),
        perplexity_before=perplexity(before),
        bits_per_byte=bits_per_byte(after, manifest.sequence, row_bytes),
        trigram_bits_per_byte=manifest.trigram_bits_per_byte,
        sequences=len(rows),
    )


def _of_a_module(spec: RunSpec, run: RunFolder, reader: BatchReader, step: int) -> Evaluation:
    rows = reader.validation(spec.compress.validation_sequences)
    losses = losses_of(spec)
    before, after = (
        measure_module(
            module,
            rows,
            losses,
            judges_itself=spec.model.loss == "own",
            has_classes=spec.model.loss == "cross_entropy",
        )
        for module in (untrained(spec), trained(spec, run, step))
    )
    return Evaluation(
        step=step,
        loss=after.loss,
        loss_before=before.loss,
        accuracy=after.accuracy,
        accuracy_before=before.accuracy,
        sequences=row_count(rows),
    )


def evaluate_again(run: RunFolder, *, step: int | None) -> Evaluation:
    """Measure a checkpoint of a finished or running run.

    Raises:
        DataError: The run has no data or no such checkpoint yet, or it is damaged.
    """
    spec = spec_of(run)
    kind: type[Dataset] = IndexedDataset if spec.data.function else DatasetManifest
    manifest = recorded(run, "data", kind)
    return evaluate_run(spec, run, manifest, reader_of_run(spec, run, manifest), step=step)


def validation_rows(spec: RunSpec, reader: BatchReader) -> NDArray[np.int64]:
    """Return the validation rows of tokens on which a run's models are measured."""
    rows = reader.validation(spec.compress.validation_sequences)
    if not isinstance(rows, np.ndarray):
        raise TypeError("a user's own dataset has no rows of tokens")
    return rows


def checkpoint_step(run: RunFolder, step: int | None) -> int:
    """Return the step whose checkpoint is meant.

    Raises:
        DataError: There is none; names those that exist.
    """
    steps = run.checkpoint_steps()
    if step is None and steps:
        return steps[-1]
    if step in steps:
        return int(step)
    have = ", ".join(map(str, steps)) or "none"
    wanted = "a checkpoint" if step is None else f"a checkpoint of step {step}"
    raise DataError(
        f"run `{run.name}` has no {wanted.removeprefix('a ')}; it has: {have}",
        where=str(run.checkpoints),
        hint="choose one of these, or train first with `ai-cli train`",
    )
