"""What a forward pass ends in: the loss that is minimised, or the losses of judged rows."""

from __future__ import annotations

import torch
from torch import Tensor

from cnai.models import token_losses, training_loss


class Objective:
    """The last stage's loss, in the form in which torch's pipeline schedules call it.

    Args:
        z_weight: Weight of the squared log-partition; it is minimised, but not reported.
        pieces: Micro-batches whose losses are averaged.
    """

    def __init__(self, z_weight: float, pieces: int) -> None:
        self._z_weight = z_weight
        self._pieces = pieces
        self._reported: list[Tensor] = []
        self.judging = False

    def __call__(self, logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Return a micro-batch's part of the loss; while judging, the mean loss of each row (B)."""
        if self.judging:
            return token_losses(logits_BTV, targets_BT).double().mean(dim=1)
        minimised, reported = training_loss(logits_BTV, targets_BT, self._z_weight)
        self._reported.append(reported.detach())
        return minimised / self._pieces

    def taken(self) -> float:
        """Return the mean cross-entropy of the last step, 0 when there was no micro-batch.

        A pipeline schedule calls the loss once more, on numbers that mean nothing, to learn shapes
        before its first step; only the calls of the step itself count.
        """
        losses, self._reported = self._reported[-self._pieces :], []
        return float(torch.stack(losses).sum()) / self._pieces if losses else 0.0
