"""How much work attention has with a row whose documents do not see each other, and evening it out.

A row of one long document costs many times what a row of many short ones costs. Within a step it
does not matter to the model which rank takes which rows, so they are dealt out evenly.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WORK_DTYPE = "<f4"


def work_of(inputs: NDArray[np.integer], separator: int) -> NDArray[np.float32]:
    """Return the pairs of tokens that see each other in each row, shape (rows).

    Args:
        inputs: Tokens that a model reads, shape (rows, tokens).
        separator: Token with which a document begins.
    """
    rows, tokens = inputs.shape
    # The end of a row ends a document too: one column more, and no document spans two rows.
    begins = np.ones((rows, tokens + 1), dtype=bool)
    begins[:, 1:tokens] = inputs[:, 1:] == separator
    row, place = np.nonzero(begins)
    inside = row[1:] == row[:-1]
    lengths = np.diff(place)[inside].astype(np.float64)
    pairs = np.bincount(row[:-1][inside], weights=lengths * (lengths + 1) / 2, minlength=rows)
    return pairs.astype(WORK_DTYPE)


def evened(work: NDArray[np.floating], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return an order in which groups of neighbours have about the same work.

    Each group is dealt out again in the same way into groups of the next size. The longest row goes
    first, always to the group with the least work that has a place left. Source: Graham 1969, with
    a limit on the number as in Krause et al. 1975 (section 3).

    Args:
        work: Of each row.
        sizes: Rows of a group, the larger first; each divides the one before and the first the
            number of rows.

    Raises:
        ValueError: A size does not divide.
    """
    places = np.arange(len(work), dtype=np.int64)
    if not sizes:
        return places
    size, *smaller = sizes
    if size < 1 or len(work) % size:
        raise ValueError(f"{len(work)} rows do not make groups of {size}")
    groups = _dealt(work, len(work) // size, size) if size < len(work) else [places]
    return np.concatenate([group[evened(work[group], smaller)] for group in groups])


def _dealt(work: NDArray[np.floating], groups: int, size: int) -> list[NDArray[np.int64]]:
    taken: list[list[int]] = [[] for _ in range(groups)]
    open_groups = [(0.0, group) for group in range(groups)]
    for place in np.argsort(-work, kind="stable").tolist():
        load, group = heapq.heappop(open_groups)
        taken[group].append(place)
        if len(taken[group]) < size:
            heapq.heappush(open_groups, (load + float(work[place]), group))
    return [np.array(sorted(one), dtype=np.int64) for one in taken]
