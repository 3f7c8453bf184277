"""Updates are nothing against the weights: the learning rate is too low."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding, StepDone
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Run, Speaker, update_ratios

RATIO = 1e-6
"""SageMaker Debugger's rule WeightUpdateRatio speaks below 1e-8."""
PERSISTENCE_STEPS = 15


class RateLow(Speaker):
    """Speaks when the typical ratio was below 1e-6 for 15 steps in which the rate did not rise."""

    name: ClassVar[str] = "rate_low"

    def __init__(self) -> None:
        super().__init__()
        self._low = Run(PERSISTENCE_STEPS)
        self._rate = 0.0
        self._rises = True

    def _begin(self) -> None:
        self._low.is_long(seen=False)
        self._rate, self._rises = 0.0, True

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, StepDone) and event.rank == 0:
            self._rises = event.learning_rate > self._rate * (1 + 1e-9)
            self._rate = event.learning_rate
        if not isinstance(event, LayersMeasured):
            return None
        _, ratios = update_ratios(event)
        ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
        if not len(ratios):
            return None
        typical = float(np.median(ratios))
        if not self._low.is_long(typical < RATIO and not self._rises):
            return None
        return self._found(
            event,
            event.step,
            f"updates are {typical:.1e} of the weights",
            f"below {RATIO:g} for {PERSISTENCE_STEPS} steps, learning rate {self._rate:g}",
            advice=("raise train.learning_rate; about 1e-3 of the weights is usual",),
        )
