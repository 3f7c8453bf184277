"""Constants that only look like weights: the fixed bases of a transform.

A Fourier, cosine or wavelet basis, and a bank of mel filters, stand in audio models as convolutions
or matrices. Nothing was learned in them; a small error in each of their numbers goes through the
logarithm that follows them, and a metric may even rise while the model breaks. They stay floats
(float16 leaves an error 30 times smaller than INT8 does).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SHORTEST = 32
_FEWEST_ROWS = 8
_ROWS_LOOKED_AT = 256
_TONE = 0.9
"""Share of a row's energy that lies in a few neighbouring frequencies if the row is a wave."""
_MOST = 0.8
"""Share of the rows that must look like it."""


def is_fixed_basis(rows: NDArray[np.floating]) -> bool:
    """Tell whether most rows are windowed waves or the triangles of a filter bank.

    Args:
        rows: A weight as (channels, numbers of a channel).
    """
    if rows.ndim != 2 or rows.shape[0] < _FEWEST_ROWS or rows.shape[1] < _SHORTEST:
        return False
    step = max(1, rows.shape[0] // _ROWS_LOOKED_AT)
    seen = rows[::step].astype(np.float64)
    # Sine rows of frequency 0 are zero; they say nothing.
    seen = seen[np.abs(seen).max(axis=1) > 0]
    if len(seen) < _FEWEST_ROWS:
        return False
    return _share_of_waves(seen) >= _MOST or _share_of_filters(seen) >= _MOST


def _share_of_waves(rows: NDArray[np.float64]) -> float:
    """Return the share of rows whose energy lies around one frequency (a window spreads it).

    The rows must also have different frequencies: smooth learned rows all have the lowest.
    """
    power = np.abs(np.fft.rfft(rows, axis=1)) ** 2
    total = power.sum(axis=1)
    peak = power.argmax(axis=1)
    reach = 2
    padded = np.pad(power, ((0, 0), (reach, reach)))
    around = np.stack([padded[np.arange(len(rows)), peak + k] for k in range(2 * reach + 1)])
    waves = around.sum(axis=0) >= _TONE * total
    several = len(np.unique(peak[waves])) >= max(_FEWEST_ROWS // 2, waves.sum() // 4)
    return float(waves.mean()) if several else 0.0


def _share_of_filters(rows: NDArray[np.float64]) -> float:
    """Return the share of rows with one short run of positive numbers and zeros elsewhere."""
    if (rows < 0).any():
        return 0.0
    positive = rows > 0
    runs = (np.diff(positive.astype(np.int8), axis=1, prepend=0) == 1).sum(axis=1)
    short = positive.sum(axis=1) <= rows.shape[1] // 2
    return float(((runs == 1) & short).mean())
