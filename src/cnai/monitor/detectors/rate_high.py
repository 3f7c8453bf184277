"""Updates are as large as the weights: the learning rate is too high.

A healthy update is about a thousandth of the weights (Karpathy's rule of thumb); SageMaker
Debugger's rule WeightUpdateRatio speaks above 10, when all is lost.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker, update_ratios

LARGE = 0.3
TIMES = 3
STEPADY = 0.1
WINDOW_STEPS = 20


class RateHigh(Speaker):
    """Speaks when a matrix is changed by 30 % three times in 20 steps, or half of all by 10 %."""

    name: ClassVar[str] = "rate_high"

    def __init__(self) -> None:
        super().__init__()
        self._largest: deque[float] = deque(maxlen=WINDOW_STEPS)
        self._typical: deque[float] = deque(maxlen=WINDOW_STEPS)

    def _begin(self) -> None:
        self._largest.clear()
        self._typical.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        names, ratios = update_ratios(event)
        if not np.isfinite(ratios).any():
            return None
        at = int(np.nanargmax(ratios))
        largest, typical = float(ratios[at]), float(np.nanmedian(ratios))
        self._largest.append(largest)
        self._typical.append(typical)
        often = sum(one > LARGE for one in self._largest)
        steady = sum(one > STEPADY for one in self._typical)
        if often < TIMES and steady < WINDOW_STEPS // 2:
            return None
        return self._found(
            event,
            event.step,
            f"an update changed `{names[at]}` by {largest:.0%} of its weights",
            f"more than {LARGE:.0%} in {often} of the last {len(self._largest)} steps",
            f"half of the matrices by more than {typical:.1%}",
            advice=("lower train.learning_rate, or let it rise over more train.warmup_steps",),
            layer=names[at],
        )
