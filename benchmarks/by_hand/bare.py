"""One process: forward, backward, clip, optimizer, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from by_hand.step import CLIP, MICROBATCHES, Step, adamw, loss_of, update, whole
from cnai.core.shape import DecoderShape
from cnai.models import Weights


def make(shape: DecoderShape, weights: Weights, _mesh: DeviceMesh) -> Step:
    """Return the step."""
    module = whole(shape, weights)
    rule = adamw(module)

    def step(rows: Tensor, rate: float) -> float:
        total = torch.zeros(())
        for piece in rows.chunk(MICROBATCHES):
            loss = loss_of(module(piece[:, :-1]), piece[:, 1:]) / MICROBATCHES
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(module.parameters(), CLIP, foreach=True)
        update(rule, rate)
        return float(total)

    return step
