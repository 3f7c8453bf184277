"""The door between measuring and balancing: what the ranks measured in, what is to move out.

The decision is made by every rank for itself, out of numbers that are the same on all of them, so
that it needs no message. Whoever decides must therefore be a pure function of what it was told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What all ranks together measured in one step; the same on every rank.

    Attributes:
        step: Steps done, this one included.
        step_seconds: From the first row to the moment in which all ranks agreed, mean of the ranks.
        row_seconds: Computing time for one sequence, forward and backward, without any wait: a line
            a stage with a number for each data rank.
    """

    step: int
    step_seconds: float
    row_seconds: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A decision to share out work in another way.

    Attributes:
        before: Sequences of each data rank, or layers of each stage, until now.
        after: The same from now on.
        gain: Throughput that is expected over the present one, 1.3 = 30 % more; of a move that is
            taken back, what was measured.
        reason: Why, with the numbers.
        is_rollback: Whether it takes an earlier move back.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    gain: float
    reason: str
    is_rollback: bool = False


class Balancer(Protocol):
    """Shares the rows of a batch out over the data ranks."""

    def decide(self, measures: Measures) -> Move | None:
        """Look at one more step; return how the rows are shared out from the next step on.

        None = as before. The sum of the rows stays the same.
        """
        ...
