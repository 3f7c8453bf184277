"""The policies, by name; a new one is a file here and a line in `POLICIES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cnai.core.errors import SpecError
from cnai.schedule.decide import Policy
from cnai.schedule.demand import Demand
from cnai.schedule.placement.fragmentation import Fragmentation
from cnai.schedule.placement.scores import AnyFit, BestFit, QuantisedGradient
from cnai.schedule.policies.adaptive import Adaptive
from cnai.schedule.policies.backfill import Backfill, by_true_time
from cnai.schedule.policies.easy import Easy
from cnai.schedule.policies.fifo import Fifo
from cnai.schedule.policies.las import least_attained, least_attained_time
from cnai.schedule.policies.srsf import shortest_remaining

Maker = Callable[[Iterable[Demand], int], Policy]


def _ours(seen: Iterable[Demand], _seed: int) -> Policy:
    return Adaptive(scorer=QuantisedGradient(Fragmentation(seen)))


POLICIES: Mapping[str, Maker] = {
    "cnai": _ours,
    "fifo": lambda _seen, _seed: Fifo(),
    "backfill": lambda _seen, _seed: Backfill(),
    "easy": lambda _seen, _seed: Easy(),
    "las": lambda _seen, _seed: least_attained_time(),
    "las-2d": lambda _seen, _seed: least_attained(),
    "sjf": lambda _seen, _seed: Backfill(order=by_true_time, name="sjf"),
    "srsf": lambda _seen, _seed: shortest_remaining(),
    "random": lambda _seen, seed: Backfill(scorer=AnyFit(seed), name="random"),
    "best-fit": lambda _seen, _seed: Backfill(scorer=BestFit(), name="best-fit"),
    "fgd": lambda seen, _seed: Backfill(
        scorer=QuantisedGradient(Fragmentation(seen), ties=False), name="fgd"
    ),
}

ORACLES = frozenset({"easy", "sjf", "srsf"})
"""Policies that get the true times in a simulation; nobody has them on a cluster."""


def make_policy(name: str, seen: Iterable[Demand] = (), seed: int = 0) -> Policy:
    """Make a policy by its name.

    Args:
        name: One of `POLICIES`.
        seen: Demands of the work that usually comes, for the measure of fragmentation.
        seed: Of policies that draw.

    Raises:
        SpecError: No policy has this name.
    """
    maker = POLICIES.get(name)
    if maker is None:
        raise SpecError(
            f"no policy is called `{name}`",
            where="--policy",
            hint=f"choose among {', '.join(POLICIES)}",
        )
    return maker(seen, seed)
