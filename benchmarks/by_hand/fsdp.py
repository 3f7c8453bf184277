"""Parameters sharded over the copies with torch's fully_shard (FSDP2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from by_hand.step import CLIP, MICROBATCHES, Step, adamw, averaged, loss_of, update, whole
from cnai.core.shape import DecoderShape
from cnai.models import Weights


def make(shape: DecoderShape, weights: Weights, mesh: DeviceMesh) -> Step:
    """Return the step; a group a layer, gradients scattered after every micro-batch."""
    module = whole(shape, weights)
    data = mesh["data"]
    for layer in module.layers.values():
        fully_shard(layer, mesh=data)
    fully_shard(module, mesh=data)
    rule = adamw(module)

    def step(rows: Tensor, rate: float) -> float:
        total = torch.zeros(())
        for index, piece in enumerate(rows.chunk(MICROBATCHES)):
            module.set_is_last_backward(index == MICROBATCHES - 1)
            loss = loss_of(module(piece[:, :-1]), piece[:, 1:]) / MICROBATCHES
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP, foreach=True)
        update(rule, rate)
        return averaged(total, data.get_group(), data.size())

    return step
