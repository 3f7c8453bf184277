"""The order of training: which row lies at which position of an endless run.

Nothing is stored: a position, the number of rows and a seed give the row. Batch size, ranks and
layout do not appear, so a run resumes anywhere at any size.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def row_at(position: int, rows: int, seed: int) -> int:
    """Return the row at one position."""
    return int(rows_at(np.array([position], dtype=np.int64), rows, seed)[0])


def rows_at(positions: NDArray[np.int64], rows: int, seed: int) -> NDArray[np.int64]:
    """Return the row at each position, shape as `positions`.

    Every `rows` positions form an epoch, in which each row comes once, in an order of its own.
    """
    epochs, places = np.divmod(positions, rows)
    found = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        found[here] = permutation(rows, seed, int(epoch))[places[here]]
    return found


@lru_cache(maxsize=3)
def permutation(rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the order of the rows in one epoch; 8 bytes a row, kept for the last three epochs.

    Sorts raw PCG64 output instead of calling `Generator.permutation`, because numpy promises the
    same raw stream in every version but not the same shuffle (NEP 19).
    """
    keys = np.random.PCG64(np.random.SeedSequence([seed, epoch])).random_raw(rows)
    order: NDArray[np.int64] = np.argsort(keys, kind="stable").astype(np.int64)
    order.setflags(write=False)
    return order
