"""What a forward pass ends in: the loss that is minimised, or the losses of judged rows."""

from __future__ import annotations

import torch
from torch import Tensor

from cnai.models import token_losses, training_loss


class Objective:
    """The last stage's loss, in the form in which torch's pipeline schedules call it.

    Args:
        z_weight: Weight of the squared log-partition; it is minimised, but not reported.
        pieces: Micro-batches of an even share of the batch. Every one counts with one of so many
            parts, also where a rank takes more or fewer, so that the average over the data ranks is
            that over all rows.
        piece_rows: Rows of a micro-batch; a smaller one counts less.
    """

    def __init__(self, z_weight: float, pieces: int, piece_rows: int) -> None:
        self._z_weight = z_weight
        self._pieces = pieces
        self._piece_rows = piece_rows
        self._reported: list[Tensor] = []
        self.judging = False

    def __call__(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Return a micro-batch's part of the loss; while judging, the mean loss of each row (B)."""
        if self.judging:
            return token_losses(logits_BTV, targets_BT).double().mean(dim=1)
        minimised, reported = training_loss(logits_BTV, targets_BT, self._z_weight)
        rows = len(targets_BT)
        if rows != self._piece_rows:
            minimised, reported = (
                part * (rows / self._piece_rows) for part in (minimised, reported)
            )
        self._reported.append(reported.detach())
        return minimised / self._pieces

    def taken(self, pieces: int) -> float:
        """Return the part of the last step's loss that so many micro-batches make, 0 for none.

        A pipeline schedule calls the loss once more, on numbers that mean nothing, to learn shapes
        before its first step; only the calls of the step itself count.
        """
        losses, self._reported = self._reported[-pieces:], []
        return float(torch.stack(losses).sum()) / self._pieces if losses else 0.0
