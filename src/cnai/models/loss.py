"""The training loss: cross-entropy of the next token, in nats.

Shape suffixes as in `decoder`: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from cnai.core.errors import SpecError


def token_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy over all tokens, a float32 scalar."""
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())


def training_loss(logits_BTV: Tensor, targets_BT: Tensor, z_weight: float) -> tuple[Tensor, Tensor]:
    """Return what is minimised and the cross-entropy alone, float32 scalars.

    With a weight, the squared logarithm of the softmax's denominator is added, which keeps the
    logits from drifting. Source: Chowdhery et al. 2022 (PaLM), arXiv 2204.02311, section 5.
    """
    if not z_weight:
        loss = token_loss(logits_BTV, targets_BT)
        return loss, loss
    logits_BTV = logits_BTV.float()
    log_z_BT = logits_BTV.logsumexp(dim=-1)
    right_BT = logits_BTV.gather(-1, targets_BT.unsqueeze(-1)).squeeze(-1)
    loss = (log_z_BT - right_BT).mean()
    return loss + z_weight * log_z_BT.square().mean(), loss


def token_losses(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the cross-entropy of each token, float32 of shape (B, T)."""
    flat = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="none")
    return flat.view(targets_BT.shape)


RowLosses = Callable[[Any, Tensor | None], Tensor]
"""From a module's outputs and the target to the loss of each row, shape (rows)."""


def cross_entropy_losses(outputs: Any, target: Tensor | None) -> Tensor:
    """Return the mean cross-entropy of each row of logits (rows, ..., classes)."""
    target = _fitting(outputs, target, outputs.shape[:-1])
    if target.is_floating_point():
        raise SpecError(
            f"the target is of type {str(target.dtype).removeprefix('torch.')}, and cross-entropy "
            "wants the number of a class",
            where="model.loss",
            hint="give whole numbers as the target, or set `model.loss: squared_error`",
        )
    flat = F.cross_entropy(outputs.flatten(0, -2).float(), target.flatten(), reduction="none")
    losses: Tensor = flat.view(outputs.shape[0], -1).mean(dim=1)
    return losses


def squared_error_losses(outputs: Any, target: Tensor | None) -> Tensor:
    """Return the mean squared error of each row."""
    target = _fitting(outputs, target, outputs.shape)
    losses: Tensor = (outputs.float() - target.view(outputs.shape)).square()
    return losses.flatten(1).mean(dim=1) if losses.dim() > 1 else losses


def _fitting(outputs: Any, target: Tensor | None, size: torch.Size) -> Tensor:
    """Return the target if it has as many numbers as there are to be."""
    if target is not None and target.numel() == size.numel():
        return target
    found = "there is none" if target is None else f"its shape is {tuple(target.shape)}"
    raise SpecError(
        f"outputs of shape {tuple(outputs.shape)} want a target of {tuple(size)}, and {found}",
        where="model.loss",
        hint="the last array of an item (or its key `target`) is the target; choose another "
        "`model.loss`, or `own` for a module that judges itself",
    )


def own_losses(outputs: Any, _target: Tensor | None) -> Tensor:
    """Return what the module returned; the target went into it."""
    losses: Tensor = outputs
    return losses


ROW_LOSSES: dict[str, RowLosses] = {
    "cross_entropy": cross_entropy_losses,
    "squared_error": squared_error_losses,
    "own": own_losses,
}
