"""A run went on without the state of its optimizer."""

from __future__ import annotations

from typing import ClassVar

from cnai.core.events import Event, Finding, RankMeasured
from cnai.monitor.detectors.speaker import Speaker

SHARE = 0.5


class OptimizerLost(Speaker):
    """Speaks when an optimizer has counted less than half of what it had, or forgot to count."""

    name: ClassVar[str] = "optimizer_lost"

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[int, int] = {}

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, RankMeasured):
            return None
        before = self._counted.get(event.rank)
        counted = event.optimizer_steps
        if counted is not None:
            self._counted[event.rank] = counted
        if before is None and not (self._resumed and counted is not None):
            return None
        expected = before if before is not None else self._resumed
        expected = min(expected, event.step) if event.step else expected
        if expected < 4 or (counted or 0) >= SHARE * expected:
            return None
        return self._found(
            event,
            event.step,
            f"the optimizer of rank {event.rank} has counted {counted or 0} steps of {expected}",
            "its averages began anew, so the next updates are of another size",
            advice=("load the state of the optimizer together with the weights",),
            rank=event.rank,
        )
