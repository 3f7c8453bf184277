"""Muon: momentum whose matrix is made orthogonal before it is applied.

Sources: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks" (the rule and
the coefficients of the Newton-Schulz iteration); Liu et al. 2025, arXiv 2502.16982, section 2.2
(the scale 0.2 sqrt(max(rows, columns)), by which an update is as large as AdamW's, so that one
learning rate and one weight decay serve both).

A matrix that is split over ranks is gathered first, because the iteration works on the whole; each
rank then keeps its slice of the result. That costs one message a matrix and step, and every rank
that holds a part repeats the arithmetic of the whole; sharing it out is not done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from cnai.train.shards import Shard, held_index

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_LIKE_ADAMW = 0.2


class Muon(torch.optim.Optimizer):
    """Updates the shards of hidden matrices; its state exists from the start."""

    def __init__(
        self, shards: list[Shard], *, rate: float, momentum: float, weight_decay: float
    ) -> None:
        self._shards = shards
        self._momentum = momentum
        super().__init__(
            [{"params": [shard.local for shard in shards]}],
            {"lr": rate, "weight_decay": weight_decay},
        )
        for shard in shards:
            self.state[shard.local] = {"momentum": torch.zeros_like(shard.local)}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all shards from the gradients of their local tensors; `closure` is not used."""
        del closure
        rate: float = self.param_groups[0]["lr"]
        decay: float = self.param_groups[0]["weight_decay"]
        for shard in self._shards:
            update = self._update(shard, self.state[shard.local])
            shard.local.mul_(1 - rate * decay).add_(update, alpha=-rate)

    def _update(self, shard: Shard, state: dict[str, Any]) -> Tensor:
        """Return this rank's slice of the scaled orthogonal matrix."""
        gradient, average = shard.local.grad, state["momentum"]
        if gradient is None:
            raise RuntimeError(f"no gradient for {shard.name}")
        average.mul_(self._momentum).add_(gradient)
        ahead = shard.wrap(gradient.add(average, alpha=self._momentum))
        if not isinstance(ahead, DTensor):
            return scaled(ahead)
        whole: Tensor = ahead.full_tensor()
        return scaled(whole)[held_index(ahead)]


def scaled(matrix: Tensor) -> Tensor:
    """Return the orthogonal matrix nearest to one, about as large as an update of AdamW."""
    return orthogonalised(matrix).mul_(_LIKE_ADAMW * math.sqrt(max(matrix.shape[-2:])))


def orthogonalised(matrix: Tensor) -> Tensor:
    """Push all singular values of a matrix, or of each in a stack, near 1.

    Five Newton-Schulz iterations do so.

    They end between about 0.7 and 1.2; for the purpose that is as good as 1, and faster. The
    iteration runs in float32, so that layouts, whose sums differ in the last bits, stay together.
    """
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.float().mT if tall else matrix.float()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    step: Tensor = (x.mT if tall else x).contiguous().to(matrix.dtype)
    return step
