"""The memory of a process grows steadily."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding, RankMeasured
from cnai.core.units import format_bytes
from cnai.monitor.detectors.speaker import Speaker, Values

MEASUREMENTS = 5
LEAST_GROWTH = 0.04
LEAST_BYTES = 48 << 20
STRAIGHT = 0.97
"""Least R^2 of a straight line through the measurements."""
STEADY = 0.6
"""Growth of the second half over that of the first; memory that settles grows less and less."""
_WARM_UP = 4
"""Measurements at the start that are left out: caches fill, libraries load."""


class MemoryLeak(Speaker):
    """Speaks when five measurements in a row lie on a rising line, by 4 % and 48 MiB."""

    name: ClassVar[str] = "memory_leak"

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, deque[tuple[int, int]]] = {}
        self._skipped: dict[int, int] = {}

    def _begin(self) -> None:
        self._seen.clear()
        self._skipped.clear()

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, RankMeasured) or event.rss_bytes is None:
            return None
        skipped = self._skipped.get(event.rank, 0)
        self._skipped[event.rank] = skipped + 1
        if skipped < _WARM_UP:
            return None
        seen = self._seen.setdefault(event.rank, deque(maxlen=MEASUREMENTS))
        seen.append((event.step, event.rss_bytes))
        if len(seen) < MEASUREMENTS:
            return None
        steps, sizes = (np.array(one, dtype=np.float64) for one in zip(*seen, strict=True))
        growth = sizes[-1] - sizes[0]
        if growth < max(LEAST_BYTES, LEAST_GROWTH * sizes[0]) or not _is_steady(steps, sizes):
            return None
        a_step = growth / (steps[-1] - steps[0])
        return self._found(
            event,
            event.step,
            f"the memory of rank {event.rank} grows by {format_bytes(a_step)} a step",
            f"{format_bytes(sizes[0])} at step {steps[0]:.0f}, {format_bytes(sizes[-1])} now",
            advice=("look for lists that keep losses or batches, with their graphs",),
            rank=event.rank,
        )


def _is_steady(steps: Values, sizes: Values) -> bool:
    """Tell whether memory grows all the time, in a straight line, and no less at the end."""
    middle = MEASUREMENTS // 2
    if (np.diff(sizes) <= 0).any():
        return False
    if sizes[-1] - sizes[middle] < STEADY * (sizes[middle] - sizes[0]):
        return False
    return float(np.corrcoef(steps, sizes)[0, 1] ** 2) >= STRAIGHT
