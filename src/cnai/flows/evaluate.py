"""`ai-cli eval`: what a checkpoint is worth on text that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnai.core.batches import BatchReader
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.flows.data import reader_of_run
from cnai.flows.folder import spec_of
from cnai.flows.model import trained, untrained
from cnai.flows.stages import recorded
from cnai.models import bits_per_byte, perplexity, sequence_losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Measures on the validation split.

    Attributes:
        perplexity_before: Of the model that training started from.
        bits_per_byte: Independent of the tokenizer; `trigram_bits_per_byte` is what a byte trigram
            model, trained on the same documents, reaches on the same split.
        sequences: Validation rows measured.
    """

    step: int
    loss: float
    perplexity: float
    perplexity_before: float
    bits_per_byte: float
    trigram_bits_per_byte: float
    sequences: int


def evaluate_run(
    spec: RunSpec,
    run: RunFolder,
    manifest: DatasetManifest,
    reader: BatchReader,
    *,
    step: int | None = None,
) -> Evaluation:
    """Measure a checkpoint, the newest one unless a step is named.

    Raises:
        DataError: There is no such checkpoint, or it is damaged.
    """
    chosen = checkpoint_step(run, step)
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


def evaluate_again(run: RunFolder, *, step: int | None) -> Evaluation:
    """Measure a checkpoint of a finished or running run.

    Raises:
        DataError: The run has no data or no such checkpoint yet, or it is damaged.
    """
    spec = spec_of(run)
    manifest = recorded(run, "data", DatasetManifest)
    return evaluate_run(spec, run, manifest, reader_of_run(spec, run, manifest), step=step)


def validation_rows(spec: RunSpec, reader: BatchReader) -> NDArray[np.int64]:
    """Return the validation rows on which a run's models are measured."""
    return reader.validation(spec.compress.validation_sequences)


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
