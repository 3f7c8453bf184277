"""What a forward pass ends in: the loss that is minimised, or the losses of judged rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cnai.core.errors import SpecError
from cnai.models import RowLosses, token_losses, training_loss


class Objective:
    """The last stage's loss, in the form in which torch's pipeline schedules call it.

    Args:
        z_weight: Weight of the squared log-partition; it is minimised, but not reported.
        pieces: Micro-batches of an even share of the batch. Every one counts with one of so many
            parts, also where a rank takes more or fewer, so that the average over the data ranks is
            that over all rows.
        piece_rows: Rows of a micro-batch; a smaller one counts less.
        losses: Of a user's own module, from outputs and target to the loss of each row; None = the
            outputs are logits of tokens.
    """

    def __init__(
        self, z_weight: float, pieces: int, piece_rows: int, losses: RowLosses | None = None
    ) -> None:
        self._z_weight = z_weight
        self._pieces = pieces
        self._piece_rows = piece_rows
        self._losses = losses
        self._reported: list[Tensor] = []
        self.judging = False

    def __call__(self, outputs: Any, target: Tensor | None = None) -> Tensor:
        """Return a micro-batch's part of the loss; while judging, the mean loss of each row (B)."""
        if self._losses is not None:
            rows = checked(self._losses(outputs, target))
            if self.judging:
                return rows.double()
            count, minimised = len(rows), rows.mean()
            reported = minimised
        elif target is None:
            raise RuntimeError("logits of tokens are judged against targets")
        elif self.judging:
            return token_losses(outputs, target).double().mean(dim=1)
        else:
            count = len(target)
            minimised, reported = training_loss(outputs, target, self._z_weight)
        if count != self._piece_rows:
            share = count / self._piece_rows
            minimised, reported = share * minimised, share * reported
        self._reported.append(reported.detach())
        return minimised / self._pieces

    def taken(self, pieces: int) -> float:
        """Return the part of the last step's loss that so many micro-batches make, 0 for none.

        A pipeline schedule calls the loss once more, on numbers that mean nothing, to learn shapes
        before its first step; only the calls of the step itself count.
        """
        losses, self._reported = self._reported[-pieces:], []
        return float(torch.stack(losses).sum()) / self._pieces if losses else 0.0


def checked(losses: object) -> Tensor:
    """Refuse what is not one loss a row.

    Raises:
        SpecError: It is no tensor, or has more axes or none.
    """
    if isinstance(losses, Tensor) and losses.dim() == 1 and losses.is_floating_point():
        return losses
    what = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
    raise SpecError(
        f"the loss has {what}, but it must be one number a row, shape (rows)",
        where="model.loss",
        hint="take the mean over all axes but the first",
    )
