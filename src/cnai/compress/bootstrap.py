"""How much a measured number depends on the samples that were drawn.

Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13 (percentile
interval).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SUSPICIOUS_GAIN = 0.05
"""Rounding weights makes no model so much better; one that is was broken before or is now."""
_DRAWS = 1000


def interval(samples: int, statistic: Callable[[NDArray[np.int64]], float]) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a number over samples that are drawn again.

    Args:
        samples: How many there are.
        statistic: From the indices of drawn samples (samples) to the number; draws for which it is
            no finite number are left out.

    Returns:
        No numbers when it is finite for none.
    """
    generator = np.random.default_rng(0)
    drawn = (statistic(generator.integers(samples, size=samples)) for _ in range(_DRAWS))
    sound = [one for one in drawn if np.isfinite(one)]
    if not sound:
        return float("nan"), float("nan")
    low, high = np.percentile(sound, [2.5, 97.5])
    return float(low), float(high)
