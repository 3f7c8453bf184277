"""Which size each elastic job should have: everybody the least, then where a GPU helps most.

Source: the greedy rule of Qiao et al. 2021 (Pollux, OSDI) without its genetic search, over the
sizes that are valid; weights follow Berg et al. 2020, "heSRPT: Parallel Scheduling to Minimize Mean
Slowdown", which gives more to jobs that end soon, but never everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.schedule.jobs import JobRow
from cnai.schedule.queues import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that may be resized.

    Attributes:
        sizes: Workers that are valid, rising.
        speeds: Speed at each, over the speed at the size that was asked for.
        gpu_milli: Thousandths of GPUs of one worker.
        weight: How much its speed counts.
    """

    place: int
    sizes: tuple[int, ...]
    speeds: tuple[float, ...]
    gpu_milli: int
    weight: float
    queue: str = ""


def sizes_of(row: JobRow, least_efficiency: float = 0.0) -> tuple[int, ...]:
    """Return the valid sizes of a job: multiples of its unit that make it faster.

    Args:
        row: The job.
        least_efficiency: Speed a worker, over that at the smallest size, that a size must keep.
    """
    least, most = row.least or row.workers, row.most or row.workers
    if row.curve is None:
        return (row.workers,)
    good = tuple(size for size in row.curve.sizes if least <= size <= most and size % row.unit == 0)
    if not good:
        return (row.workers,)
    alone = row.curve.speed(good[0]) / good[0]
    return tuple(size for size in good if row.curve.speed(size) / size >= least_efficiency * alone)


def spread(
    candidates: Sequence[Candidate], free_milli: int, quota: Quota | None = None
) -> dict[int, int]:
    """Return the workers of each candidate; all fit into what is free.

    Candidates are admitted at their least size in the order given, those that do not fit are left
    out. Then the best step is taken again and again: the largest gain in weighted speed for each
    GPU, where a step may skip sizes that do not pay by themselves.
    """
    level: dict[int, int] = {}
    for index, one in enumerate(candidates):
        need = one.sizes[0] * one.gpu_milli
        if need <= free_milli and not forbidden(quota, one.queue, need):
            level[index] = 0
            free_milli -= need
    heap = [step for index in level if (step := _step(candidates[index], index, 0, free_milli))]
    heapq.heapify(heap)
    while heap and free_milli > 0:
        _, index, target = heapq.heappop(heap)
        one = candidates[index]
        need = (one.sizes[target] - one.sizes[level[index]]) * one.gpu_milli
        if forbidden(quota, one.queue, need if need <= free_milli else 0):
            continue
        if need <= free_milli:
            free_milli -= need
            level[index] = target
        # Where it did not fit any more, a smaller step may.
        step = _step(one, index, level[index], free_milli)
        if step:
            heapq.heappush(heap, step)
    return {candidates[index].place: candidates[index].sizes[at] for index, at in level.items()}


def forbidden(quota: Quota | None, queue: str, milli: int) -> bool:
    """Tell whether a limit of a queue forbids so much more; if not, it is counted."""
    if quota is None:
        return False
    if quota.blocker(queue, milli):
        return True
    quota.add(queue, milli)
    return False


def _step(one: Candidate, index: int, at: int, free_milli: int) -> tuple[float, int, int] | None:
    """Return the best next step as (minus gain a GPU, candidate, target)."""
    best: tuple[float, int, int] | None = None
    for target in range(at + 1, len(one.sizes)):
        milli = (one.sizes[target] - one.sizes[at]) * one.gpu_milli
        if milli > free_milli:
            break
        gain = one.weight * (one.speeds[target] - one.speeds[at]) / milli
        if gain > 0 and (best is None or -gain < best[0]):
            best = (-gain, index, target)
    return best
