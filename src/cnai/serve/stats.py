"""Counts of what a service does, and a frozen picture of them for metrics and the autoscaler."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from enum import StrEnum

from cnai.core.serving import Histogram, ServeSnapshot

BOUNDS_SECONDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip


class Outcome(StrEnum):
    """How a request ended."""

    STOP = "stop"
    """The model or a stop string ended the text."""
    LENGTH = "length"
    """It reached `max_tokens` or the end of the context."""
    CANCELLED = "cancelled"
    """The client left, or the server shut down."""
    FAILED = "failed"
    """The engine failed."""
    REJECTED = "rejected"
    """The queue was full, or the server shutting down."""
    INVALID = "invalid"
    """The request was refused as wrong, before it was queued."""


class _Buckets:
    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum += seconds

    def freeze(self) -> Histogram:
        return Histogram(bounds=BOUNDS_SECONDS, counts=tuple(self.counts), sum=self.sum)


class Recorder:
    """Counts from any thread."""

    def __init__(self, *, model: str, queue_limit: int, active_limit: int) -> None:
        self._lock = threading.Lock()
        self._model = model
        self._limits = (queue_limit, active_limit)
        self._outcomes = Counter[Outcome]()
        self._prompt_tokens = 0
        self._generated_tokens = 0
        self._latency = _Buckets()
        self._first = _Buckets()
        self._queue = _Buckets()

    def started(self, *, queue_seconds: float, prompt_tokens: int) -> None:
        """Count a request that leaves the queue for the engine."""
        with self._lock:
            self._queue.add(queue_seconds)
            self._prompt_tokens += prompt_tokens

    def token(self, *, first_after_seconds: float | None = None) -> None:
        """Count a generated token; the first of a request brings the time since its arrival."""
        with self._lock:
            self._generated_tokens += 1
            if first_after_seconds is not None:
                self._first.add(first_after_seconds)

    def ended(self, outcome: Outcome, *, latency_seconds: float | None = None) -> None:
        """Count a request that ended; only whole answers have a latency."""
        with self._lock:
            self._outcomes[outcome] += 1
            if latency_seconds is not None:
                self._latency.add(latency_seconds)

    def mean_latency_seconds(self) -> float | None:
        """Return the mean latency so far; None before the first answer."""
        with self._lock:
            return self._latency.freeze().mean

    def snapshot(self, *, queue_depth: int, active: int) -> ServeSnapshot:
        """Return everything, taken at one moment."""
        with self._lock:
            return ServeSnapshot(
                model=self._model,
                requests={outcome.value: self._outcomes[outcome] for outcome in Outcome},
                prompt_tokens=self._prompt_tokens,
                generated_tokens=self._generated_tokens,
                queue_depth=queue_depth,
                queue_limit=self._limits[0],
                active=active,
                active_limit=self._limits[1],
                latency_seconds=self._latency.freeze(),
                first_token_seconds=self._first.freeze(),
                queue_seconds=self._queue.freeze(),
            )
