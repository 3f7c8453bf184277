"""What a decision asks a driver to do, each with a reason that a program can read."""

from __future__ import annotations

from dataclasses import dataclass, field

from cnai.schedule.demand import Slot

Fact = float | int | str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why: a stable code, and the numbers behind it."""

    code: str
    facts: dict[str, Fact] = field(default_factory=dict)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in self.facts.items())  # fmt: skip
        return f"{self.code} ({told})" if told else self.code


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do for a job, a pool of nodes or a service; `job` is its name."""

    job: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Action):
    """Start all workers of a job at once, in these slots."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize(Action):
    """At its next checkpoint, go on with these slots instead; only the data-parallel size moves."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrate(Action):
    """At its next checkpoint, go on with as many workers elsewhere."""

    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt(Action):
    """Save a checkpoint, give everything back, wait in the queue again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Action):
    """End the job for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleNodes(Action):
    """Ask for a pool of nodes of this size; `job` is the pool."""

    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReplicas(Action):
    """Run so many replicas of a service; `job` is the service."""

    replicas: int
