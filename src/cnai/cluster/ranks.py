"""What every door says of its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to start.

    Attributes:
        target: The function that each rank calls, `package.module:function`.
        payload: Passed to it; plain JSON values.
        logs: Folder for `rank-N.log`.
        environment: Variables set in each rank.
        attempt: How often the ranks of this run were started before.
    """

    target: str
    ranks: int
    payload: dict[str, Any]
    logs: Path
    environment: dict[str, str]
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnded:
    """A rank's process is gone.

    Attributes:
        code: Exit code, or minus the signal's number.
    """

    rank: int
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """A rank's process at a moment.

    Attributes:
        state: R(unning), S(leeping), D (waits for a disk), T (stopped), or `gone`.
        cpu_seconds: Time that it has used so far.
    """

    state: str
    cpu_seconds: float


GONE = RankProcess(state="gone", cpu_seconds=0.0)
"""There is no such process any more."""
