"""More than half of the units behind a rectifier never fire.

Source of the threshold: SageMaker Debugger's rule DeadRelu flags a layer of which more than 50 %
of the units are dead.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker

SHARE = 0.5
MEASUREMENTS = 3


class DeadUnits(Speaker):
    """Speaks when the median of three measurements of a layer is above the share."""

    name: ClassVar[str] = "dead_units"
    group: ClassVar[str] = "dead"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, deque[float]] = {}

    def _begin(self) -> None:
        self._seen.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        worst: tuple[float, str] = (0.0, "")
        for name, value in zip(event.names(self.group), event.group(self.group), strict=True):
            if np.isnan(value):
                continue
            window = self._seen.setdefault(name, deque(maxlen=MEASUREMENTS))
            window.append(float(value))
            if len(window) == MEASUREMENTS:
                worst = max(worst, (median(window), name))
        share, name = worst
        return self._tell(event, share, name) if share > SHARE else None

    def _tell(self, event: LayersMeasured, share: float, name: str) -> Finding:
        return self._found(
            event,
            event.step,
            f"{share:.0%} of the units of `{name}` never fire",
            f"median of {MEASUREMENTS} measurements, limit {SHARE:.0%}",
            advice=("lower train.learning_rate", "use a leaky rectifier, GELU or SiLU"),
            layer=name,
        )
