"""How long each stage of a rank computes, without the waits for other ranks in between.

On a GPU the work only stands in a queue when a call returns; there marks in the same queue are
compared, which stand behind the message that a micro-batch waits for.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up the computing time of the stages of this rank over a step."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._marks: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def running(self, stage: int) -> Iterator[None]:
        """Count the block for a stage."""
        if self._is_cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._marks.append((stage, begin, end))
            return
        start = time.perf_counter()
        yield
        self._seconds[stage] += time.perf_counter() - start

    def taken(self) -> dict[int, float]:
        """Return the seconds of each stage since the last call; waits for the device to be done."""
        for stage, begin, end in self._marks:
            end.synchronize()
            self._seconds[stage] += begin.elapsed_time(end) / 1000
        self._marks.clear()
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds
