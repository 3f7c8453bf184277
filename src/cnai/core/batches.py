"""The door between data and training: any row of any step's batch, without state.

The position in the data is `step x global batch`, nothing else, so a run resumes at any layout and
every rank asks for its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[Any]
    Rows = NDArray[np.int64] | tuple[Column, ...] | dict[str, Column]
    """Rows of a batch: packed tokens of shape (count, sequence + 1), inputs `[:, :-1]` and targets
    `[:, 1:]`; or, of a dataset of the user's own, one array a column, its first axis the rows."""


class BatchReader(Protocol):
    """Rows in the order in which training sees them."""

    def rows(self, step: int, first: int, count: int) -> Rows:
        """Return rows `first` up to `first + count` of the batch of a step.

        Args:
            step: Zero-based step; the same step always gives the same rows.
            first: First row within the global batch.
            count: Rows wanted.
        """
        ...

    def prefetch(self, step: int, first: int, count: int) -> None:
        """Begin to read what `rows` will be asked for next; returns at once."""
        ...

    def validation(self, limit: int | None = None) -> Rows:
        """Return the validation rows in a fixed order, at most `limit` of them."""
        ...


def row_count(rows: Rows) -> int:
    """Return how many rows there are."""
    if isinstance(rows, dict):
        return len(next(iter(rows.values())))
    return len(rows[0]) if isinstance(rows, tuple) else len(rows)


def picked(rows: Rows, places: NDArray[np.int64] | slice) -> Rows:
    """Return the rows at these places."""
    if isinstance(rows, dict):
        return {name: column[places] for name, column in rows.items()}
    if isinstance(rows, tuple):
        return tuple(column[places] for column in rows)
    return rows[places]
