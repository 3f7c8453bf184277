"""The training loss: cross-entropy of the next token, in nats.

Shape suffixes as in `decoder`: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses


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
