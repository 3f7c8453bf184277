"""Queues with guarantees and limits, and what of them is used.

Sources: Ghodsi et al. 2011, "Dominant Resource Fairness" (NSDI) for the share; usage decays with a
half-life, so that what a queue used long ago does not count against it for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnai.core.errors import SpecError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One queue, maybe inside another.

    Attributes:
        guaranteed_milli: Thousandths of GPUs that it gets back whenever it has work.
        limit_milli: Most that it may hold; None means the whole cluster.
        weight: Its part of what nobody is guaranteed.
        parent: Queue whose limit holds it too; empty means none.
    """

    name: str
    guaranteed_milli: int = 0
    limit_milli: int | None = None
    weight: float = 1.0
    parent: str = ""


class Queues:
    """The queues of a cluster, and what each has used lately.

    Attributes:
        half_life_seconds: Time after which used GPU-seconds count half.

    Raises:
        SpecError: A queue lies inside itself or inside one that is not there.
    """

    def __init__(
        self, queues: Sequence[Queue] = (), half_life_seconds: float = 7 * 86400.0
    ) -> None:
        self.table = {queue.name: queue for queue in queues}
        self.half_life_seconds = half_life_seconds
        self.used: dict[str, float] = {}
        for queue in queues:
            self._check(queue)

    def __bool__(self) -> bool:
        return bool(self.table)

    def _check(self, queue: Queue) -> None:
        seen = {queue.name}
        parent = queue.parent
        while parent:
            if parent in seen or parent not in self.table:
                wrong = "lies inside itself" if parent in seen else f"has no parent `{parent}`"
                raise SpecError(
                    f"queue `{queue.name}` {wrong}", where="queues", hint="mend its `parent`"
                )
            seen.add(parent)
            parent = self.table[parent].parent

    def queue(self, name: str) -> Queue:
        """Return a queue; one that was never declared has no guarantee and no limit."""
        return self.table.get(name) or Queue(name=name)

    def chain(self, name: str) -> list[str]:
        """Return the queue and those around it, inside first."""
        found = [name]
        while parent := self.queue(found[-1]).parent:
            found.append(parent)
        return found

    def charge(self, held_milli: Mapping[str, float], seconds: float) -> None:
        """Add what each queue held for so long, after the decay of what was there."""
        decay = 0.5 ** (seconds / self.half_life_seconds)
        for name in set(self.used) | set(held_milli):
            before = self.used.get(name, 0.0) * decay
            self.used[name] = before + held_milli.get(name, 0.0) * seconds

    def usage(self, names: Sequence[str]) -> Floats:
        """Return the share of each queue of what was used lately, over its weight; at most 1."""
        raw = np.array([self.used.get(name, 0.0) / self.queue(name).weight for name in names])
        most = float(raw.max(initial=0.0))
        return np.asarray(raw / most if most > 0 else raw, dtype=np.float64)

    def within_guarantee(
        self, names: Sequence[str], queue: Ints, size: Floats, ranks: Floats
    ) -> Bools:
        """Return which jobs fit into the guarantee of their queue, lowest rank first.

        Args:
            names: The queues, by number.
            queue: Number of the queue of each job.
            size: Thousandths of GPUs of each job.
            ranks: Class of each job.
        """
        inside = np.zeros(len(queue), dtype=np.bool_)
        for number, name in enumerate(names):
            guaranteed = self.queue(name).guaranteed_milli
            rows = np.flatnonzero(queue == number) if guaranteed else np.zeros(0, dtype=np.int64)
            rows = rows[np.argsort(ranks[rows], kind="stable")]
            inside[rows[np.cumsum(size[rows]) <= guaranteed]] = True
        return inside


class Quota:
    """What each queue holds while a decision is made, against the limits of it and its parents."""

    def __init__(self, queues: Queues, held_milli: Mapping[str, float]) -> None:
        self.queues = queues
        self.held: dict[str, float] = {}
        for name, milli in held_milli.items():
            self.add(name, milli)

    def add(self, name: str, milli: float) -> None:
        """Count what a queue got, or with a minus gave back."""
        for one in self.queues.chain(name):
            self.held[one] = self.held.get(one, 0.0) + milli

    def blocker(self, name: str, milli: float) -> str | None:
        """Return the queue whose limit forbids so much more, inside first."""
        for one in self.queues.chain(name):
            limit = self.queues.queue(one).limit_milli
            if limit is not None and self.held.get(one, 0.0) + milli > limit:
                return one
        return None
