"""The gradient of the first layers is almost nothing against that of the last.

Source of the thresholds: Zhang et al. 2021 (AutoTrainer, ICSE'21): ratio of first to last below
1e-3 and the first below 1e-4; here of root mean squares, so that layers of any size compare.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import ClassVar

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker, inner_matrices

RATIO = 1e-3
FIRST = 1e-4
WINDOW_STEPS = 10


class Vanishing(Speaker):
    """Speaks when the median over 10 steps is below both thresholds."""

    name: ClassVar[str] = "vanishing"

    def __init__(self) -> None:
        super().__init__()
        self._seen: deque[tuple[float, float]] = deque(maxlen=WINDOW_STEPS)

    def _begin(self) -> None:
        self._seen.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        inner = inner_matrices(event)
        if len(inner) < 3 or not inner[-1][1] > 0:
            return None
        (name, first), (_, last) = inner[0], inner[-1]
        self._seen.append((first, last))
        if len(self._seen) < WINDOW_STEPS:
            return None
        first = median(one for one, _ in self._seen)
        last = median(one for _, one in self._seen)
        if not (first < FIRST and first < RATIO * last):
            return None
        return self._found(
            event,
            event.step,
            f"the gradient of `{name}` is {first / last:.1e} of that of the last layer",
            f"root mean squares {first:.2e} and {last:.2e}, medians over {WINDOW_STEPS} steps",
            advice=(
                "add residual connections or norms between the layers",
                "replace sigmoid or tanh by ReLU, GELU or SiLU",
            ),
            layer=name,
        )
