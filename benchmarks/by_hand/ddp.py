"""Copies of the model with torch's DistributedDataParallel."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from by_hand.step import CLIP, MICROBATCHES, Step, adamw, averaged, loss_of, update, whole
from cnai.core.shape import DecoderShape
from cnai.models import Weights


def make(shape: DecoderShape, weights: Weights, mesh: DeviceMesh) -> Step:
    """Return the step; the gradients of all micro-batches but the last are only added up."""
    module = whole(shape, weights)
    data = mesh["data"]
    wrapped = DistributedDataParallel(
        module, process_group=data.get_group(), gradient_as_bucket_view=True
    )
    rule = adamw(module)

    def step(rows: Tensor, rate: float) -> float:
        total = torch.zeros(())
        for index, piece in enumerate(rows.chunk(MICROBATCHES)):
            with nullcontext() if index == MICROBATCHES - 1 else wrapped.no_sync():
                loss = loss_of(wrapped(piece[:, :-1]), piece[:, 1:]) / MICROBATCHES
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP, foreach=True)
        update(rule, rate)
        return averaged(total, data.get_group(), data.size())

    return step
