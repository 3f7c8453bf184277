"""The same batch comes again and again."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from cnai.core.events import Event, Finding, RankMeasured
from cnai.monitor.detectors.speaker import Speaker

WINDOW_STEPS = 20
DISTANCE = 8
"""A batch that comes again after more steps is another epoch."""
SHARE = 0.3


class RepeatedData(Speaker):
    """Speaks when 30 % of a rank's batches came within 8 steps before."""

    name: ClassVar[str] = "repeated_data"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, deque[str]] = {}

    def _begin(self) -> None:
        self._seen.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, RankMeasured):
            return None
        seen = self._seen.setdefault(event.rank, deque(maxlen=WINDOW_STEPS + DISTANCE))
        seen.extend(event.batches)
        recent = list(seen)
        if len(recent) < WINDOW_STEPS:
            return None
        again = [
            name in recent[max(0, at - DISTANCE) : at]
            for at, name in enumerate(recent[-WINDOW_STEPS:], start=len(recent) - WINDOW_STEPS)
        ]
        share = sum(again) / len(again)
        if share <= SHARE:
            return None
        return self._found(
            event,
            event.step,
            f"{share:.0%} of the last {WINDOW_STEPS} batches of rank {event.rank} are repeats",
            f"the same hash within {DISTANCE} steps",
            advice=("look at the order of the data: its seed, and what a resume sets it to",),
            rank=event.rank,
        )
