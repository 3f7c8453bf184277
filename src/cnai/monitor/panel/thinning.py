"""Curves of any length in as many points as a screen has pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def thin(x: Array, y: Array, points: int) -> tuple[Array, Array]:
    """Keep about `points` of a curve such that no peak is lost.

    The curve is cut into stretches of equal length; of each the smallest and the largest value
    stay, and of the whole the first and the last. What is no number stays when nothing else is
    there, so that a gap is drawn where the curve has one.

    Args:
        x: Rising, of the length of `y`.
        y: Values; NaN and infinities are allowed.
        points: Most points, at least 4; a shorter curve is returned as it is.
    """
    length = len(x)
    if length <= points:
        return x, y
    buckets = max(1, (points - 2) // 2)
    width = -(-length // buckets)
    padded = np.full(buckets * width, np.nan)
    padded[:length] = y
    table = padded.reshape(buckets, width)
    finite = np.isfinite(table)
    low = np.where(finite, table, np.inf).argmin(axis=1)
    high = np.where(finite, table, -np.inf).argmax(axis=1)
    start = np.arange(buckets) * width
    kept = np.unique(np.concatenate([start + low, start + high, [0, length - 1]]))
    kept = kept[kept < length]
    return x[kept], y[kept]
