"""Attention of ranks that each hold a slice of the positions (context parallelism).

All of the model but attention works position by position, so a rank of the context axis takes its
slice through all layers. Around attention an all-to-all gives each rank all positions of some of
the heads, and another gives the results back; every rank then does the same causal work. Source:
Jacobs et al. 2023 (DeepSpeed-Ulysses), arXiv 2309.14509.

Shape suffixes as in `cnai.models.decoder`, and C ranks of the axis, T positions on one of them,
U = C x T in all, N heads of queries, keys and values together.
"""

from __future__ import annotations

from math import lcm
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd

from cnai.models import Decoder
from cnai.models.decoder import Layer, attend
from cnai.models.documents import Documents
from cnai.train.ranks import Ranks


class HeadsForPositions:
    """Attention over all positions of this rank's share of the heads.

    Fewer key-value heads than ranks are repeated, as often as it takes to give each rank one.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._size = group.size()

    def __call__(
        self,
        q_BHTK: Tensor,
        k_BGTK: Tensor,
        v_BGTK: Tensor,
        past: int = 0,
        documents: Documents | None = None,
    ) -> Tensor:
        """Mix each token with those before it, also those on other ranks.

        Raises:
            ValueError: There are past tokens; a cache is not shared out.
        """
        if past:
            raise ValueError("a cache is not shared out over positions")
        repeat = lcm(k_BGTK.shape[1], self._size) // k_BGTK.shape[1]
        if repeat > 1:
            k_BGTK, v_BGTK = (x.repeat_interleave(repeat, dim=1) for x in (k_BGTK, v_BGTK))
        queries, keys = q_BHTK.shape[1] // self._size, k_BGTK.shape[1] // self._size
        mine_BNUK = self._to_heads((q_BHTK, k_BGTK, v_BGTK))
        q_BHUK, k_BGUK, v_BGUK = mine_BNUK.split((queries, keys, keys), dim=1)
        return self._to_positions(attend(q_BHUK, k_BGUK, v_BGUK, 0, documents))

    def _to_heads(self, parts: tuple[Tensor, ...]) -> Tensor:
        """Send each rank its heads of every part, in one message."""
        pieces = [part.unflatten(1, (self._size, -1)) for part in parts]
        out_CBNTK = torch.cat(pieces, dim=2).transpose(0, 1)
        return self._exchanged(out_CBNTK).permute(1, 2, 0, 3, 4).flatten(2, 3)

    def _to_positions(self, mixed_BHUK: Tensor) -> Tensor:
        """Send each rank its positions of this rank's heads."""
        out_CBHTK = mixed_BHUK.unflatten(2, (self._size, -1)).permute(2, 0, 1, 3, 4)
        return self._exchanged(out_CBHTK).transpose(0, 1).flatten(1, 2)

    def _exchanged(self, out: Tensor) -> Tensor:
        """Send slice i of the first axis to rank i of the group; get one from each."""
        return all_to_all_single_autograd(out.contiguous(), None, None, self._group)


def exchange_positions(part: Decoder, ranks: Ranks) -> None:
    """Let a part of the decoder work on this rank's slice of the positions."""
    if ranks.context is None:
        return
    part.slice_index = ranks.place.context
    for layer in part.layers.values():
        cast("Layer", layer).attention.attend = HeadsForPositions(ranks.context)
