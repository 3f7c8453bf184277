"""Memory of a row's fullest rank, by the planner's model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erf, log, sqrt

from plan_rows import Row

from cnai.plan.machines import USABLE
from cnai.plan.planner import weigh_trial
from cnai.plan.request import PlanRequest

GIB = 2**30
SPREAD = 0.12
LIKELY = 0.8


@dataclass(frozen=True, slots=True)
class RowMemory:
    """What a rank needs, and how likely that is too much."""

    gib: float
    fits: bool
    oom_probability: float


def memory_of(row: Row) -> RowMemory:
    """Predict the memory of a row's fullest rank, with what the allocator loses to gaps.

    Where a row does not say what was recomputed, the least is taken that fits.
    """
    found = _memory(row, row.request)
    if row.recompute_unsaid:
        for mode in ("selective", "full"):
            if not found.fits:
                found = _memory(row, replace(row.request, recompute=mode))
    return found


def _memory(row: Row, request: PlanRequest) -> RowMemory:
    peak = weigh_trial(request, row.machines, row.trial).plan.peak.memory
    need = peak.total_bytes / USABLE / GIB
    if row.is_bare:
        need = (peak.total_bytes - peak.overhead_bytes) / GIB
    chance = 0.5 * (1 + erf(log(need / row.memory_gib) / SPREAD / sqrt(2)))
    return RowMemory(gib=need, fits=chance < LIKELY, oom_probability=round(chance, 4))
