"""More than half of the outputs of a sigmoid or tanh are at an end, where no gradient passes.

Source of the threshold: SageMaker Debugger's rule SaturatedActivation, 50 %.
"""

from __future__ import annotations

from typing import ClassVar

from cnai.core.events import Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.dead_units import MEASUREMENTS, SHARE, DeadUnits


class Saturation(DeadUnits):
    """Speaks when the median of three measurements of a layer is above the share."""

    name: ClassVar[str] = "saturation"
    group: ClassVar[str] = "saturated"

    def _tell(self, event: LayersMeasured, share: float, name: str) -> Finding:
        return self._found(
            event,
            event.step,
            f"{share:.0%} of the outputs of `{name}` are at their ends",
            f"median of {MEASUREMENTS} measurements, limit {SHARE:.0%}",
            advice=("make the initial weights smaller", "put a norm before it"),
            layer=name,
        )
