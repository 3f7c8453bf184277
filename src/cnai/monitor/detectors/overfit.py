"""The loss on validation rows rises while that of training falls.

Source of the gap: SageMaker Debugger's rule Overfit, 10 % of the training loss.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import EvaluationDone, Event, Finding, StepDone
from cnai.monitor.detectors.speaker import Run, Speaker

GAP = 0.1
RISE = 0.03
NATS = 0.08
"""A rise that is smaller than this is the noise of few rows."""
EVALUATIONS = 2
_WINDOW_STEPS = 10


class Overfit(Speaker):
    """Speaks when validation is 3 % above its best and 10 % above training, twice in a row."""

    name: ClassVar[str] = "overfit"

    def __init__(self) -> None:
        super().__init__()
        self._losses: deque[float] = deque(maxlen=_WINDOW_STEPS)
        self._best = math.inf
        self._worse = Run(EVALUATIONS)

    def _begin(self) -> None:
        self._losses.clear()

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, StepDone) and event.rank == 0 and math.isfinite(event.loss):
            self._losses.append(event.loss)
        if not isinstance(event, EvaluationDone) or len(self._losses) < _WINDOW_STEPS:
            return None
        training = median(self._losses)
        best, self._best = self._best, min(self._best, event.loss)
        gap = (event.loss - training) / max(training, 1e-9)
        if not self._worse.is_long(gap > GAP and event.loss > best + max(NATS, RISE * best)):
            return None
        return self._found(
            event,
            event.step,
            f"validation loss {event.loss:.3f}, {event.loss / best - 1:.0%} above its best",
            f"training loss {training:.3f}",
            advice=("use more data", "stop at the best checkpoint, or raise train.weight_decay"),
        )
