"""A service at one moment, as its server counts it and metrics and autoscaler read it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Durations sorted into intervals.

    Attributes:
        bounds: Inclusive upper bounds in seconds, rising.
        counts: Durations in each interval, not added up; one more than bounds, for the rest.
        sum: All durations together, in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Self:
        """Return a histogram that has seen nothing."""
        return cls(bounds=bounds, counts=(0,) * (len(bounds) + 1), sum=0.0)

    def with_value(self, seconds: float) -> Self:
        """Return it with one duration more."""
        place = bisect_left(self.bounds, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return replace(self, counts=counts, sum=self.sum + seconds)

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)

    @property
    def cumulative(self) -> tuple[int, ...]:
        """Durations up to each bound; the last is all."""
        return tuple(accumulate(self.counts))

    @property
    def mean(self) -> float | None:
        """Mean duration; None when there is none."""
        return self.sum / self.count if self.count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSnapshot:
    """What a service has done since it started, and what it does now.

    Attributes:
        requests: Ended requests by outcome (`stop`, `length`, `cancelled`, `failed`, ...).
        queue_depth: Requests that wait, of `queue_limit` that may.
        active: Requests that generate, of `active_limit` that may.
        latency_seconds: From arrival to the end of a whole answer.
        first_token_seconds: From arrival to the first token.
        queue_seconds: From arrival to the start of work.
    """

    model: str
    requests: dict[str, int]
    prompt_tokens: int
    generated_tokens: int
    queue_depth: int
    queue_limit: int
    active: int
    active_limit: int
    latency_seconds: Histogram
    first_token_seconds: Histogram
    queue_seconds: Histogram
