"""The door between data and training: any row of any step's batch, without state.

The position in the data is `step x global batch`, nothing else, so a run resumes at any layout and
every rank asks for its own rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BatchReader(Protocol):
    """Packed token rows in the order in which training sees them."""

    def rows(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return rows `first` up to `first + count` of the batch of a step.

        Args:
            step: Zero-based step; the same step always gives the same rows.
            first: First row within the global batch.
            count: Rows wanted.

        Returns:
            Tokens of shape (count, sequence + 1): inputs are `[:, :-1]`, targets `[:, 1:]`.
        """
        ...

    def prefetch(self, step: int, first: int, count: int) -> None:
        """Begin to read what `rows` will be asked for next; returns at once."""
        ...

    def validation(self, limit: int | None = None) -> NDArray[np.int64]:
        """Return the validation rows in a fixed order, at most `limit` of them."""
        ...
