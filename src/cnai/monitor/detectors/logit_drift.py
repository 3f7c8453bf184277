"""All logits drift away together, which the loss does not see until numbers overflow.

Source: Chowdhery et al. 2022 (PaLM), arXiv 2204.02311, section 5: a loss of 1e-4 log^2 Z keeps the
log-partition near 0.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding, Repair, StepDone
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker

LOG_Z = 10.0
TIMES = 2.0
MEASUREMENTS = 3
SURE = 0.25
"""Share of its first value below which a loss is that of a model that is sure of its answers."""


class LogitDrift(Speaker):
    """Speaks when mean |log Z| is above 10, twice what it was at first, and rose three times."""

    name: ClassVar[str] = "logit_drift"

    def __init__(self) -> None:
        super().__init__()
        self._first: float | None = None
        self._loss = 0.0
        self._first_loss: float | None = None
        self._last: deque[float] = deque(maxlen=MEASUREMENTS)

    def _begin(self) -> None:
        self._last.clear()

    def _is_sure(self) -> bool:
        """Tell whether the loss is so small that large logits are what it asks for."""
        return self._first_loss is not None and self._loss < SURE * self._first_loss

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, StepDone):
            self._loss = event.loss
            self._first_loss = event.loss if self._first_loss is None else self._first_loss
        if not isinstance(event, LayersMeasured) or not len(event.group("log_z")):
            return None
        value = float(event.group("log_z")[0])
        if not np.isfinite(value):
            return None
        self._first = value if self._first is None else self._first
        self._last.append(value)
        last = list(self._last)
        rising = len(last) == MEASUREMENTS and last == sorted(last) and last[0] < last[-1]
        if not rising or value <= max(LOG_Z, TIMES * self._first) or self._is_sure():
            return None
        return self._found(
            event,
            event.step,
            f"the log-partition of the logits has drifted to {value:.1f}",
            f"{self._first:.1f} at first, rising in {MEASUREMENTS} measurements in a row",
            advice=(Repair(title="keep it near 0", spec_patch={"train.z_loss": 1e-4}),),
            layer=event.names("log_z")[0],
        )
