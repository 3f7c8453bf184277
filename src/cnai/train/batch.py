"""What a forward pass takes and what its outputs are held against, as tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cnai.models.documents import documents_of

if TYPE_CHECKING:
    from cnai.core.batches import Column, Rows

TARGET = "target"
"""Name of the column of a dataset of dicts against which outputs are held."""


_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows.

    Attributes:
        inputs: Arguments of the module; the first axis of each counts the rows.
        named: Its arguments by keyword.
        target: What the outputs are held against; None = the module judges itself.
        rows: How many.
        tokens_a_row: Predicted tokens of a whole row, 1 where rows are no tokens.
        everywhere: Arguments by keyword that every stage of a pipeline takes, also where ranks
            share the positions out.
    """

    inputs: tuple[Tensor, ...]
    named: dict[str, Tensor]
    target: Tensor | None
    rows: int
    tokens_a_row: int = 1
    everywhere: dict[str, Tensor] = field(default_factory=dict)

    def pieces(self, rows: int) -> list[Batch]:
        """Cut into pieces of so many consecutive rows; the last may have fewer."""
        firsts = range(0, self.rows, rows)
        return [self._between(first, min(first + rows, self.rows)) for first in firsts]

    def positions(self, index: int, count: int) -> Batch:
        """Return slice `index` of `count` along the positions; only rows of tokens have them."""
        if count == 1:
            return self
        length = self.tokens_a_row // count
        first, end = index * length, (index + 1) * length
        return replace(
            self,
            inputs=tuple(one[:, first:end] for one in self.inputs),
            target=None if self.target is None else self.target[:, first:end],
        )

    def _between(self, first: int, end: int) -> Batch:
        return Batch(
            tuple(one[first:end] for one in self.inputs),
            {name: one[first:end] for name, one in self.named.items()},
            None if self.target is None else self.target[first:end],
            end - first,
            self.tokens_a_row,
            {name: one[first:end] for name, one in self.everywhere.items()},
        )


def batch_of(
    rows: Rows,
    device: torch.device = _CPU,
    *,
    judges_itself: bool = False,
    separator: int | None = None,
) -> Batch:
    """Turn rows into a batch.

    Of packed tokens each predicts its next. Of a tuple the last column is the target, of a dict the
    column `target`.

    Args:
        judges_itself: Whether the module takes the target too and returns the loss of each row.
        separator: Token with which a document begins, where none is to see another.
    """
    if isinstance(rows, np.ndarray):
        tokens = torch.from_numpy(rows).to(device)
        inputs, target, length = (tokens[:, :-1],), tokens[:, 1:], rows.shape[1] - 1
        if judges_itself:
            return Batch((*inputs, target), {}, None, len(tokens), length)
        everywhere = {}
        if separator is not None:
            everywhere["document_BT"] = documents_of(inputs[0], separator)
        return Batch(inputs, {}, target, len(tokens), length, everywhere)
    if isinstance(rows, tuple):
        columns = tuple(_tensor(column, device) for column in rows)
        count = len(columns[0])
        if judges_itself or len(columns) == 1:
            return Batch(columns, {}, None, count)
        return Batch(columns[:-1], {}, columns[-1], count)
    named = {name: _tensor(column, device) for name, column in rows.items()}
    count = len(next(iter(named.values())))
    return Batch((), named, None if judges_itself else named.pop(TARGET, None), count)


def _tensor(column: Column, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(column)).to(device)
