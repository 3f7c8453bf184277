"""How much faster one model is than another, on a machine that others use too.

Both run in turns, so that a change of the machine's load hits both; what counts is the ratio of
each pair, and the median of the ratios.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cnai.compress.guard.trials import Speed
from cnai.core.clock import Clock

FEWEST_PAIRS = 9
_MOST_PAIRS = 200
_DRAWS = 500


def measure_speed(
    before: Callable[[], object],
    after: Callable[[], object],
    clock: Clock,
    *,
    rows: int,
    seconds: float = 1.5,
) -> Speed:
    """Run two models in turns and compare their times.

    Args:
        rows: Samples in one run, for the report.
        seconds: After these no new pair begins, once there are `FEWEST_PAIRS`.
    """
    for _ in range(2):
        before()
        after()
    start = clock.monotonic()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < _MOST_PAIRS:
        if len(pairs) >= FEWEST_PAIRS and clock.monotonic() - start >= seconds:
            break
        pairs.append((_seconds(before, clock), _seconds(after, clock)))
    times = np.maximum(np.array(pairs), 1e-9)
    ratios = times[:, 0] / times[:, 1]
    generator = np.random.default_rng(0)
    drawn = np.median(ratios[generator.integers(len(ratios), size=(_DRAWS, len(ratios)))], axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Speed(
        ratio=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        before_seconds=float(np.median(times[:, 0])),
        after_seconds=float(np.median(times[:, 1])),
        pairs=len(pairs),
        rows=rows,
    )


def _seconds(run: Callable[[], object], clock: Clock) -> float:
    start = clock.monotonic()
    run()
    return clock.monotonic() - start
