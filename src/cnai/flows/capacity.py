"""How many ranks a run may have at this moment, and why no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cnai.core.fleet import Fleet
from cnai.core.spec import RunSpec

FleetNow = Callable[[], Fleet]


@dataclass(frozen=True, slots=True)
class Room:
    """Ranks that there is room for, with the reason in words."""

    ranks: int
    reason: str


class Capacity:
    """Counts what the fleet holds, without the places that lost their rank again and again.

    A place that was given up is tried again after `train.regrow_seconds`, each further time after
    twice as long, so that a broken machine costs less and less.
    """

    def __init__(self, spec: RunSpec, fleet: FleetNow, clock: Callable[[], float]) -> None:
        self._settings = spec.train
        self._fleet = fleet
        self._clock = clock
        self._losses: Counter[tuple[str, int]] = Counter()
        self._given_up: list[float] = []
        self._times = 0
        self._shrunk: float | None = None
        self._excluded: set[str] = set()

    def fleet(self) -> Fleet:
        """Return the machines that there are now, without those that were excluded."""
        found = self._fleet()
        if not self._excluded:
            return found
        return Fleet(nodes=tuple(one for one in found.nodes if one.name not in self._excluded))

    def exclude(self, node: str) -> None:
        """Use a machine no more, for as long as this command lives."""
        self._excluded.add(node)

    def shrunk(self) -> None:
        """Hear that the run goes on with fewer ranks from now on."""
        self._shrunk = self._clock()

    def may_grow(self) -> bool:
        """Tell whether the run was small for long enough, so that it does not flutter."""
        small = self._shrunk
        return small is None or self._clock() >= small + self._settings.regrow_seconds

    def lost(self, plan_digest: str, rank: int) -> bool:
        """Count the loss of a rank; tell whether its place is given up by that."""
        place = (plan_digest, rank)
        self._losses[place] += 1
        if self._losses[place] < self._settings.give_up_rank_after:
            return False
        del self._losses[place]
        self._given_up.append(self._clock() + self._settings.regrow_seconds * 2**self._times)
        self._times += 1
        return True

    def room(self, wanted: int) -> Room:
        """Return how many of the wanted ranks there is room for now."""
        now = self._clock()
        self._given_up = [until for until in self._given_up if until > now]
        devices, missing = self.fleet().devices, len(self._given_up)
        if devices < wanted - missing:
            return Room(devices, f"the machines hold {devices} of {wanted} ranks")
        if missing:
            ranks = max(1, wanted - missing)
            return Room(ranks, f"ranks were lost {missing} times too often in the same place")
        return Room(wanted, f"the machines hold all {wanted} ranks")
