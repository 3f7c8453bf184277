"""Rows for fast ranks, taken from slow ones: the batch stays, its shares change.

A data rank with n rows takes (n + i) t, where t is the time of its slowest stage for a row and i
the rows for which its pipeline idles while it fills and drains. The largest of these over the data
ranks is what the step takes, and it is made as small as it can be.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from cnai.core.balance import Measures, Move
from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.schedules import schedule_named
from cnai.plan.caution import Caution, Speeds
from cnai.plan.pipeline import idle_pieces

MOST = 2
"""Times its even share that a rank may get at most: what it keeps for each row is planned for."""
WHOLE_PIECES = 4
"""From so many micro-batches on they move as they are; below, their rows move one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRule:
    """Which shares a layout can run.

    Attributes:
        even: Rows of each data rank when nothing was moved.
        unit: Rows that move together.
        least: Smallest share.
        idle: Rows for whose time a rank idles in its pipeline.
    """

    ranks: int
    even: int
    unit: int
    least: int
    idle: float

    @property
    def most(self) -> int:
        """Largest share."""
        return MOST * self.even

    @property
    def total(self) -> int:
        """Rows of the batch."""
        return self.ranks * self.even


def share_rule(plan: ParallelPlan, *, whole_pieces: bool = False) -> ShareRule | str:
    """Return which shares a plan can run, or why its rows cannot be moved.

    Args:
        whole_pieces: Whether micro-batches must keep their shape, as compiled layers want.
    """
    refusal = next(_refusals(plan), None)
    if refusal is not None:
        return refusal
    layout, schedule = plan.layout, schedule_named(plan.schedule)
    even = plan.microbatches * plan.microbatch_rows
    unit, least, idle = 1, 1, 0.0
    if layout.pipeline > 1:
        pieces = layout.pipeline if schedule.rounds else 1
        unit = pieces * plan.microbatch_rows
        least = schedule.fewest(layout.pipeline) * plan.microbatch_rows
        idle = plan.microbatch_rows * idle_pieces(plan)
    elif whole_pieces or plan.microbatches >= WHOLE_PIECES:
        unit = least = plan.microbatch_rows
    if gcd(even, unit) != unit or gcd(least, unit) != unit or least >= even:
        return f"a share of {even} rows is too small to take {unit} rows from it"
    return ShareRule(ranks=layout.data, even=even, unit=unit, least=least, idle=idle)


def _refusals(plan: ParallelPlan) -> Iterator[str]:
    """Yield the reasons why the rows of a plan cannot be moved."""
    layout = plan.layout
    if layout.data == 1:
        yield "there is one data rank"
    if layout.expert > 1:
        yield "ranks that share experts out exchange tokens in every micro-batch together"
    if plan.sharding is not Sharding.NONE:
        yield (
            "sharded ranks gather their weights for every micro-batch together, and would wait for "
            "each other for ever with different numbers of them"
        )
    if layout.pipeline > 1 and plan.schedule in {"GPipe", "LoopedBFS"}:
        yield f"the schedule {plan.schedule} holds every micro-batch of a rank at once"


def best_shares(seconds: Sequence[float], rule: ShareRule) -> tuple[int, ...]:
    """Return the rows of each data rank with which the slowest ends as early as it can.

    Exact: units are given one after the other to the rank that would end first with it, which no
    other order betters, because a rank's time only grows with its rows.

    Args:
        seconds: Time of each data rank for a row, above 0.

    Source: greedy list assignment of equal jobs to uniform machines, Graham 1969, SIAM Journal on
    Applied Mathematics 17(2).
    """
    shares = [rule.least] * rule.ranks
    ends = [
        ((rule.least + rule.unit + rule.idle) * time, rank) for rank, time in enumerate(seconds)
    ]
    heapq.heapify(ends)
    for _ in range((rule.total - sum(shares)) // rule.unit):
        _, rank = heapq.heappop(ends)
        shares[rank] += rule.unit
        if shares[rank] + rule.unit <= rule.most:
            end = (shares[rank] + rule.unit + rule.idle) * seconds[rank]
            heapq.heappush(ends, (end, rank))
    return tuple(shares)


def compute_seconds(shares: Sequence[int], seconds: Sequence[float], rule: ShareRule) -> float:
    """Return what the slowest data rank computes, idle time of its pipeline included."""
    return max((rows + rule.idle) * time for rows, time in zip(shares, seconds, strict=True))


def expected_gain(step_seconds: float, now: float, then: float) -> float:
    """Return the throughput over the present one when computing takes another time.

    What a step takes beside computing stays.
    """
    left = step_seconds - now + then
    return step_seconds / left if left > 0 else 1.0


class ShareBalancer:
    """Shares the rows out by the measured speed of the data ranks; a `Balancer`."""

    def __init__(self, plan: ParallelPlan, rule: ShareRule, threshold: float) -> None:
        self._owned = [
            [stage.index for stage in plan.stages_of(place)]
            for place in range(plan.layout.pipeline)
        ]
        self._rule = rule
        self._speeds = Speeds()
        self._caution = Caution((rule.even,) * rule.ranks, threshold)
        self._is_warm = False

    def decide(self, measures: Measures) -> Move | None:
        """Look at one more step."""
        back = self._caution.hear(measures.step_seconds)
        if self._is_warm:
            self._speeds.add(self._row_seconds(measures))
        self._is_warm = True
        if back is not None or not self._caution.is_ready:
            return back
        return self._propose()

    def _row_seconds(self, measures: Measures) -> list[float]:
        """Return the time of each data rank's slowest rank of the pipeline for a row."""
        return [
            max(
                sum(measures.row_seconds[stage][data] for stage in stages) for stages in self._owned
            )
            for data in range(self._rule.ranks)
        ]

    def _propose(self) -> Move | None:
        seconds, rule = self._speeds.seconds, self._rule
        if not min(seconds, default=0.0) > 0:
            return None
        after = best_shares(seconds, rule)
        now = compute_seconds(self._caution.now, seconds, rule)
        then = compute_seconds(after, seconds, rule)
        if not self._caution.is_lasting(
            (compute_seconds(self._caution.now, one, rule), compute_seconds(after, one, rule))
            for one in self._speeds.samples
        ):
            return None
        gain = expected_gain(self._caution.step_seconds, now, then)
        slowest = max(range(rule.ranks), key=lambda rank: seconds[rank])
        times = ", ".join(f"{time:.3g}" for time in seconds[:16])
        reason = (
            f"data rank {slowest} is {seconds[slowest] / min(seconds):.2f} x as slow as the "
            f"fastest (seconds a row: {times}); expected: {now:.3f} s of computing become "
            f"{then:.3f} s in a step of {self._caution.step_seconds:.3f} s"
        )
        return self._caution.propose(after, gain=gain, reason=reason)
