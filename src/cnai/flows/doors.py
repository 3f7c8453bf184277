"""The doors through which a supervisor reaches machines; tests put others in their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cnai.cluster import LocalGang
from cnai.core.clock import Clock, SystemClock
from cnai.core.fleet import Fleet
from cnai.core.spec import RunSpec
from cnai.flows.machines import fleet_of

_KEPT_BYTES = str(2**30)


def rank_environment(ranks: int) -> dict[str, str]:
    """Return the variables that ranks of this machine need.

    OMP threads that spin while they wait make a busy machine many times slower, and more threads
    than cores do the same. Memory that a step frees is kept for the next, which asks for as much:
    the C library would hand large pieces back and have them zeroed again, for a sixth of the time.
    """
    threads = max(1, (os.cpu_count() or 1) // ranks)
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
        "TOKENIZERS_PARALLELISM": "false",
        "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
        "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a supervisor needs of the world.

    Attributes:
        gang: Starts, watches and ends the ranks.
        fleet: Says which machines there are at this moment; an elastic run asks again and again.
        worker: The function that each rank calls.
        environment: Variables of the ranks, by their number.
    """

    gang: LocalGang
    fleet: Callable[[], Fleet]
    worker: str = "cnai.flows.worker:train_rank"
    environment: Callable[[int], dict[str, str]] = rank_environment
    clock: Clock = field(default_factory=SystemClock)


def local_doors(spec: RunSpec) -> Doors:
    """Return the doors to this machine."""
    return Doors(
        gang=LocalGang(server="cnai.train.forkserver", preload=["cnai.flows.worker"]),
        fleet=lambda: fleet_of(spec),
    )
