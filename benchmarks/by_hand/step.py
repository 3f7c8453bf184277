"""What every loop by hand has: its settings, its optimizer, its micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cnai.models import Decoder, Weights, fill

Step = Callable[[Tensor, float], float]
"""From this data rank's rows (rows, sequence + 1) and the learning rate to the loss."""

MICROBATCHES = 2
CLIP = 1.0
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)


def adamw(module: nn.Module) -> torch.optim.AdamW:
    """Return the optimizer: matrices decay, norms do not."""
    parameters = list(module.parameters())
    return torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ],
        betas=BETAS,
        fused=True,
    )


def update(rule: torch.optim.Optimizer, rate: float) -> None:
    """Update with a learning rate and forget the gradients."""
    for group in rule.param_groups:
        group["lr"] = rate
    rule.step()
    rule.zero_grad()


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def whole(shape: object, weights: Weights) -> Decoder:
    """Return the model in one piece."""
    module = Decoder(shape)  # type: ignore[arg-type]
    fill(module, weights)
    return module


def averaged(value: Tensor, group: dist.ProcessGroup | None, ranks: int) -> float:
    """Return the mean of a number over ranks."""
    dist.all_reduce(value, group=group)
    return float(value) / ranks


def average_gradients(
    parameters: Iterable[Tensor], group: dist.ProcessGroup | None, ranks: int
) -> None:
    """Average gradients over a group in one flat bucket, as DistributedDataParallel does."""
    flat = torch.cat([gradient.reshape(-1) for gradient in parameters])
    dist.all_reduce(flat, group=group)
    flat /= ranks
    place = 0
    for gradient in parameters:
        gradient.copy_(flat[place : place + gradient.numel()].view_as(gradient))
        place += gradient.numel()
