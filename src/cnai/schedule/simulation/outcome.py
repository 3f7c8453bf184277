"""What a simulation found, as numbers and as series to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.jobs import State
from cnai.schedule.ledger import Ledger, money
from cnai.schedule.view import ClusterView

Floats = NDArray[np.float64]
POINTS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What became of one job; times in seconds."""

    name: str
    group: str
    gpus: float
    arrived: float
    started: float
    ended: float
    gpu_seconds: float
    resizes: int
    restarts: int

    @property
    def completion_seconds(self) -> float:
        """From arrival to end."""
        return self.ended - self.arrived

    @property
    def wait_seconds(self) -> float:
        """From arrival to the first start."""
        return self.started - self.arrived


class Track:
    """Utilisation and queue over time; thinned out by half whenever it grows long."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.used: list[float] = []
        self.capacity: list[float] = []
        self.waiting: list[int] = []
        self._every = 1
        self._seen = 0

    def add(self, now: float, view: ClusterView) -> None:
        """Note how things stand."""
        self._seen += 1
        if self._seen % self._every:
            return
        capacity = view.nodes.capacity_milli
        self.times.append(now)
        self.used.append((capacity - view.nodes.free_milli) / 1000.0)
        self.capacity.append(capacity / 1000.0)
        self.waiting.append(int((view.jobs.state == State.WAITING).sum()))
        if len(self.times) >= POINTS:
            self._every *= 2
            for series in (self.times, self.used, self.capacity, self.waiting):
                del series[::2]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One policy on one trace.

    Attributes:
        unfinished: Jobs that never ended, because nothing could start them.
        seconds: From the first arrival to the last end.
    """

    policy: str
    jobs: tuple[JobOutcome, ...]
    unfinished: int
    seconds: float
    track: Track
    ledger: Ledger
    decisions: int

    @property
    def completions(self) -> Floats:
        """Completion times in seconds."""
        return np.array([job.completion_seconds for job in self.jobs])

    @property
    def utilisation(self) -> float:
        """GPU time held by jobs over GPU time there, from the first arrival to the last end."""
        used, there = np.array(self.track.used), np.array(self.track.capacity)
        spans = np.diff(np.array(self.track.times))
        whole = float((there[:-1] * spans).sum()) if spans.size else 0.0
        return float((used[:-1] * spans).sum()) / whole if whole else 0.0

    def summary(self) -> dict[str, float | int | str]:
        """Return the numbers that policies are compared by."""
        done = self.completions if self.jobs else np.zeros(1)
        waits = np.array([job.wait_seconds for job in self.jobs]) if self.jobs else np.zeros(1)
        count = max(len(self.jobs), 1)
        return {
            "policy": self.policy,
            "jobs": len(self.jobs),
            "unfinished": self.unfinished,
            "mean_jct_h": float(done.mean()) / 3600,
            "median_jct_h": float(np.median(done)) / 3600,
            "p99_jct_h": float(np.percentile(done, 99)) / 3600,
            "mean_wait_h": float(waits.mean()) / 3600,
            "max_wait_h": float(waits.max()) / 3600,
            "makespan_h": self.seconds / 3600,
            "gpu_hours": sum(job.gpu_seconds for job in self.jobs) / 3600,
            "resizes_per_job": sum(job.resizes for job in self.jobs) / count,
            "restarts_per_job": sum(job.restarts for job in self.jobs) / count,
            "utilisation": self.utilisation,
            "cost": money(self.ledger.billed),
            "decisions": self.decisions,
        }
