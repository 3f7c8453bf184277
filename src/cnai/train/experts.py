"""Mixtures of experts over ranks: balance over the context axis, and experts spread over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch.distributed as dist
from torch import Tensor

from cnai.models import Decoder
from cnai.models.decoder import Layer
from cnai.models.experts import SparseFeedForward
from cnai.train.ranks import Ranks


def balance_experts(part: Decoder, ranks: Ranks, weight: float) -> None:
    """Let the routers of a part be trained to use their experts evenly.

    Args:
        weight: Weight of the loss of one micro-batch.
    """
    for sparse in sparse_parts(part):
        sparse.balance_weight = weight
        if ranks.context is not None:
            sparse.total = _Total(ranks.context)


def sparse_parts(part: Decoder) -> Iterator[SparseFeedForward]:
    """Yield the mixtures of a part."""
    for layer in part.layers.values():
        ffn = cast("Layer", layer).ffn
        if isinstance(ffn, SparseFeedForward):
            yield ffn


class _Total:
    """Adds up numbers over a group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def __call__(self, counts: Tensor) -> Tensor:
        dist.all_reduce(counts, group=self._group)
        return counts
