"""The weights shrink by more than 1 % a step: weight decay is far too strong."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Run, Speaker, Values, matrices_of

FALL = 0.01
PERSISTENCE_STEPS = 8


class DecayBlowup(Speaker):
    """Speaks when half of the matrices lost 1 % of their norm in each of 8 steps in a row."""

    name: ClassVar[str] = "decay_blowup"

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[int, Values] | None = None
        self._falling = Run(PERSISTENCE_STEPS)

    def _begin(self) -> None:
        self._before = None
        self._falling.is_long(seen=False)

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        _, norms = matrices_of(event, "weight")
        if not len(norms) or not np.isfinite(norms).all() or not (norms > 0).all():
            return None
        before, self._before = self._before, (event.step, norms)
        if before is None or len(before[1]) != len(norms) or event.step <= before[0]:
            return None
        change = float(np.median(np.log(norms / before[1]))) / (event.step - before[0])
        if not self._falling.is_long(change < -FALL):
            return None
        return self._found(
            event,
            event.step,
            f"the weights shrink by {-change:.1%} a step",
            f"median of the matrices, {PERSISTENCE_STEPS} steps in a row",
            advice=("lower train.weight_decay; 0.1 is usual",),
        )
