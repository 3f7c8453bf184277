"""How well a user's own module does on rows that it has not seen, in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cnai.core.batches import picked, row_count
from cnai.models import RowLosses
from cnai.train.batch import batch_of
from cnai.train.objective import checked

if TYPE_CHECKING:
    from cnai.core.batches import Rows

_ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean loss, and the share of targets that the largest output hits (None = no classes)."""

    loss: float
    accuracy: float | None


def measure_module(
    module: nn.Module,
    rows: Rows,
    losses: RowLosses,
    *,
    judges_itself: bool,
    has_classes: bool,
) -> Measured:
    """Measure a module, which is left in the mode that it was in.

    Args:
        has_classes: Whether the outputs are logits of classes and the targets their numbers.
    """
    was_training = module.training
    module.eval()
    total, hits, targets = 0.0, 0, 0
    try:
        with torch.no_grad():
            for first in range(0, row_count(rows), _ROWS_AT_ONCE):
                some = picked(rows, slice(first, first + _ROWS_AT_ONCE))
                batch = batch_of(some, judges_itself=judges_itself)
                outputs = module(*batch.inputs, **batch.named)
                total += float(checked(losses(outputs, batch.target)).double().sum())
                if has_classes and isinstance(batch.target, Tensor):
                    hits += int((outputs.argmax(dim=-1) == batch.target).sum())
                    targets += batch.target.numel()
    finally:
        module.train(was_training)
    return Measured(total / row_count(rows), hits / targets if targets else None)
