"""Services as the brain sees them: how many replicas there are, and what load came."""

from __future__ import annotations

from dataclasses import dataclass, field

TICK_SECONDS = 15.0
"""How often a service reports its load and may be resized."""


@dataclass(slots=True, kw_only=True)
class ServiceView:
    """One pool of replicas.

    Attributes:
        ready: Replicas that answer.
        starting: Replicas that are still loading.
        cold_start_seconds: From the order of a replica to its first answer.
        slo: Share of requests that must not wait too long.
        loads: Work that arrived in each tick so far, in replicas that it keeps busy.
        backlog_seconds: Work that waits, in seconds of the ready replicas.
        late: Share of the requests of each tick that waited too long.
    """

    name: str
    ready: int
    starting: int = 0
    cold_start_seconds: float = 180.0
    slo: float = 0.995
    least: int = 1
    most: int = 10_000
    loads: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    backlog_seconds: float = 0.0

    @property
    def replicas(self) -> int:
        """Ready and starting ones."""
        return self.ready + self.starting
