"""Cut a row of layers into stages so that the slowest stage is as fast as it can be."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

Cuts = tuple[tuple[int, int], ...]

# Costs are floats; two sums of the same layers may differ in their last bits.
_SLACK = 1 + 1e-9
_EVEN_LAYERS = 600
"""Above so many layers the squares are left alone: their table grows with the square of layers."""


def balance(costs: Sequence[float], stages: int, slowness: Sequence[float] | None = None) -> Cuts:
    """Return first and end index of each stage.

    Every layer is in exactly one stage, layers stay in order and no stage is empty. The largest
    sum of a stage is the smallest possible; among the cuts that reach it, the sum of squares is
    the smallest, so that what is left over is spread too. Exact, by dynamic programming over
    (stages, layers): the largest sum with a binary search for the crossing of its two monotone
    parts, then the squares within that bound.

    Args:
        costs: Cost of each layer, not negative; embedding and head are added to the ends.
        stages: Number of stages, from 1 to the number of layers.
        slowness: How long each stage takes for a unit of cost, above 0; None = all the same. A
            stage then counts with its sum times its slowness.

    Raises:
        ValueError: There are more stages than layers, or none, or not a slowness for each.

    Source: the linear partition problem, Skiena, The Algorithm Design Manual, section 10.7.
    """
    if not 1 <= stages <= len(costs):
        raise ValueError(f"{len(costs)} layers cannot be cut into {stages} stages")
    if slowness is not None and (len(slowness) != stages or min(slowness) <= 0):
        raise ValueError(f"{stages} stages cannot have the slowness {list(slowness)}")
    sums = [0.0, *accumulate(costs)]
    if slowness is not None:
        return _even_cuts(sums, slowness, _smallest_slow_peak(sums, slowness) * _SLACK)
    bound = _smallest_peak(sums, stages) * _SLACK
    if len(costs) > _EVEN_LAYERS:
        return _first_cuts(sums, stages, bound)
    return _even_cuts(sums, [1.0] * stages, bound)


def _smallest_peak(sums: list[float], stages: int) -> float:
    """Return the smallest possible largest stage."""
    layers = len(sums) - 1
    peak = list(sums)
    for stage in range(2, stages + 1):
        now = [math.inf] * (layers + 1)
        for end in range(stage, layers + 1):
            # peak[cut] rises with cut and the last stage falls: the best cut is at their crossing.
            low, high = stage - 1, end - 1
            while low < high:
                middle = (low + high) // 2
                if peak[middle] < sums[end] - sums[middle]:
                    low = middle + 1
                else:
                    high = middle
            now[end] = min(
                max(peak[cut], sums[end] - sums[cut]) for cut in {low, max(stage - 1, low - 1)}
            )
        peak = now
    return peak[layers]


def _smallest_slow_peak(sums: list[float], slowness: Sequence[float]) -> float:
    """Return the smallest possible largest stage where stages differ in speed.

    There is no crossing to search for: where no stage may be empty, a longer row of layers may have
    the smaller peak, because a slow last stage gets a cheaper layer.
    """
    layers, stages = len(sums) - 1, len(slowness)
    peak = [math.inf] * (layers + 1)
    peak[0] = 0.0
    for stage, slow in enumerate(slowness, start=1):
        now = [math.inf] * (layers + 1)
        for end in range(stage, layers - (stages - stage) + 1):
            now[end] = min(
                max(peak[cut], slow * (sums[end] - sums[cut])) for cut in range(stage - 1, end)
            )
        peak = now
    return peak[layers]


def _first_cuts(sums: list[float], stages: int, bound: float) -> Cuts:
    """Return cuts within the bound, each stage as long as it may be; no stage is empty."""
    layers, first = len(sums) - 1, 0
    cuts: list[tuple[int, int]] = []
    for stage in range(stages):
        after = stages - stage - 1
        end = max(first + 1, bisect_right(sums, sums[first] + bound) - 1)
        end = layers if after == 0 else min(end, layers - after)
        cuts.append((first, end))
        first = end
    return tuple(cuts)


def _even_cuts(sums: list[float], slowness: Sequence[float], bound: float) -> Cuts:
    """Return the cuts with the smallest sum of squares whose stages stay within the bound."""
    layers, stages = len(sums) - 1, len(slowness)
    best = [0.0] + [math.inf] * layers
    choices: list[list[int]] = []
    for stage, slow in enumerate(slowness, start=1):
        now, choice = [math.inf] * (layers + 1), [0] * (layers + 1)
        for end in range(stage, layers - (stages - stage) + 1):
            first = max(stage - 1, bisect_left(sums, sums[end] - bound / slow))
            while first >= stage and slow * (sums[end] - sums[first - 1]) <= bound:
                first -= 1  # what the division rounded away
            for cut in range(first, end):
                total = best[cut] + (slow * (sums[end] - sums[cut])) ** 2
                if total < now[end]:
                    now[end], choice[end] = total, cut
        best = now
        choices.append(choice)
    cuts: list[tuple[int, int]] = []
    end = layers
    for choice in reversed(choices):
        cuts.append((choice[end], end))
        end = choice[end]
    return tuple(reversed(cuts))
