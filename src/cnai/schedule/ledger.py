"""Who paid for which GPU: exact, in whole numbers, so that nothing is lost in rounding.

The unit is a millionth of the currency times a thousandth of a GPU times a millisecond an hour;
`money` turns it into millionths of the currency at the very end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cnai.schedule.demand import WHOLE, Slot
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import Nodes

_PER_MICRO = 1000 * 3600 * 1000


class Spent(StrEnum):
    """What the money of a GPU was spent on."""

    USEFUL = "useful"
    RESTART = "restart"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One interval of one job.

    Attributes:
        cost: In the unit of the ledger, all of it.
        lost: The part that bought a restart.
    """

    job: str
    queue: str
    phase: str
    cost: int
    lost: int


class Ledger:
    """Books what nodes cost and what jobs held of them."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.entries: list[Entry] = []
        self.billed = 0
        self._up_since: dict[int, int] = {}

    def open(self, now: float) -> None:
        """Start to bill every node that is up."""
        for node in range(len(self.nodes)):
            if self.nodes.up[node]:
                self._up_since[node] = _ms(now)

    def node(self, node: int, now: float, *, up: bool) -> None:
        """Start or end the bill of one node."""
        if up:
            self._up_since.setdefault(node, _ms(now))
        else:
            since = self._up_since.pop(node, None)
            if since is not None:
                self.billed += self._rate(node) * int(self.nodes.gpus[node]) * (_ms(now) - since)

    def close(self, now: float) -> None:
        """End all bills."""
        for node in list(self._up_since):
            self.node(node, now, up=False)

    def book(
        self, row: JobRow, slots: Sequence[Slot], since: float, until: float, lost: float
    ) -> None:
        """Charge a job for what it held; `lost` seconds of that went into a restart."""
        span = _ms(until) - _ms(since)
        milli = row.demand.gpu_milli
        rate = sum(int(self.nodes.price[slot.node]) * milli * len(slot.gpus) for slot in slots)
        gone = min(_ms(since + lost) - _ms(since), span)
        self.entries.append(
            Entry(
                job=row.name, queue=row.queue, phase=row.phase, cost=rate * span, lost=rate * gone
            )
        )

    def split(self) -> dict[Spent, int]:
        """Return what the bill was spent on; the parts add up to `billed` exactly."""
        held = sum(entry.cost for entry in self.entries)
        lost = sum(entry.lost for entry in self.entries)
        return {
            Spent.USEFUL: held - lost,
            Spent.RESTART: lost,
            Spent.IDLE: self.billed - held,
        }

    def by(self, field: str) -> dict[str, int]:
        """Return the cost of each `job`, `queue` or `phase`."""
        sums: Counter[str] = Counter()
        for entry in self.entries:
            sums[getattr(entry, field)] += entry.cost
        return dict(sums)

    def _rate(self, node: int) -> int:
        return int(self.nodes.price[node]) * WHOLE


def money(cost: int) -> float:
    """Return a cost of the ledger in the currency."""
    return cost / _PER_MICRO / 1e6


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
