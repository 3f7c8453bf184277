"""Measuring the model on validation rows while it is trained, in the layout that trains it.

Every data rank judges its share of the rows, forward only, also through a pipeline. A pass takes as
many rows as a step; the last is filled up with rows that do not count, so that all ranks pass
equally often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cnai.core.batches import BatchReader, picked, row_count
from cnai.core.errors import DataError
from cnai.core.events import EvaluationDone
from cnai.core.layout import ParallelPlan
from cnai.train.batch import Batch
from cnai.train.pipeline import Engine
from cnai.train.ranks import Ranks

if TYPE_CHECKING:
    from cnai.core.batches import Rows


class Evaluation:
    """The validation rows of a run, and how this rank judges its share of them."""

    def __init__(
        self,
        plan: ParallelPlan,
        ranks: Ranks,
        engine: Engine,
        sequences: int,
        batch_of: Callable[[Rows], Batch],
    ) -> None:
        self._plan = plan
        self._ranks = ranks
        self._engine = engine
        self._sequences = sequences
        self._batch_of = batch_of
        self._rows: Rows | None = None

    def measure(self, reader: BatchReader, *, step: int, attempt: int) -> EvaluationDone:
        """Return the mean loss over the validation rows; every rank calls this at the same step.

        Raises:
            DataError: There are no validation rows.
        """
        start = time.perf_counter()
        if self._rows is None:
            self._rows = _read(reader, self._sequences)
        pass_rows = self._plan.microbatches * self._plan.microbatch_rows
        first = self._ranks.place.data * pass_rows
        total, count = 0.0, 0
        there = row_count(self._rows)
        for begin in range(0, there, self._plan.global_batch):
            places = np.arange(begin + first, begin + first + pass_rows)
            counts = places < there
            rows = picked(self._rows, np.where(counts, places, 0))
            batch = self._batch_of(rows)
            own = batch.positions(self._ranks.place.context, self._ranks.layout.context)
            losses = self._engine.judge(own)
            if len(losses):
                kept = losses.cpu().numpy()[counts]
                total, count = total + float(kept.sum()), count + len(kept)
        # Ranks of the context axis judge parts of the same rows, equally long.
        repeated = self._ranks.layout.model * self._ranks.layout.context
        total, judged = self._ranks.total([total / repeated, count / repeated])
        return EvaluationDone(
            time_unix=time.time(),
            attempt=attempt,
            step=step,
            loss=total / judged,
            sequences=round(judged),
            seconds=time.perf_counter() - start,
        )


def _read(reader: BatchReader, sequences: int) -> Rows:
    rows = reader.validation(sequences)
    if not row_count(rows):
        raise DataError(
            "there are no validation sequences to measure on",
            where="train.evaluate_every",
            hint="raise `data.validation_fraction`, give more text, or set it to 0",
        )
    return rows
