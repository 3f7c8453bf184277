"""The training loss: cross-entropy of the next token, in nats.

Shape suffixes as in `decoder`: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses


def token_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy over all tokens, a float32 scalar."""
    return F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())


def token_losses(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Return the cross-entropy of each token, float32 of shape (B, T)."""
    flat = F.cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten(), reduction="none")
    return flat.view(targets_BT.shape)
