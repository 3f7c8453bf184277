"""Layers split over ranks with torch's parallelize_module."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from by_hand.step import CLIP, MICROBATCHES, Step, adamw, loss_of, update, whole
from cnai.core.shape import DecoderShape
from cnai.models import Decoder, Weights


def split(module: Decoder, model: DeviceMesh) -> None:
    """Split attention and feed-forward by Megatron's rule, and the tied embedding by words."""
    for layer in module.layers.values():
        parallelize_module(
            layer,
            model,
            {
                "attention.q_proj": ColwiseParallel(),
                "attention.k_proj": ColwiseParallel(),
                "attention.v_proj": ColwiseParallel(),
                "attention.o_proj": RowwiseParallel(),
                "ffn.gate_proj": ColwiseParallel(),
                "ffn.up_proj": ColwiseParallel(),
                "ffn.down_proj": RowwiseParallel(),
            },
        )
    ends = {}
    if hasattr(module, "embedding"):
        ends["embedding"] = RowwiseParallel(input_layouts=Replicate())
    if module.is_last:
        ends["head"] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(module, model, ends)
    module.tie_head()


def clip_mixed(parameters: list[nn.Parameter], extra_square: float = 0.0) -> float:
    """Clip gradients of which some are split and some whole; return the squared norm.

    torch's own function takes one kind at a time.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    kinds = ([g for g in gradients if isinstance(g, DTensor)],
             [g for g in gradients if not isinstance(g, DTensor)])  # fmt: skip
    square = extra_square
    for kind in kinds:
        if kind:
            norm = torch.nn.utils.get_total_norm(kind, foreach=True)
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            square += float(norm) ** 2
    scale_to(parameters, square)
    return square


def scale_to(parameters: list[nn.Parameter], square: float) -> None:
    """Scale gradients whose squared norm is known down to the limit."""
    norm = square**0.5
    if norm > CLIP:
        gradients = [p.grad for p in parameters if p.grad is not None]
        local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
        torch._foreach_mul_(local, CLIP / norm)


def make(shape: DecoderShape, weights: Weights, mesh: DeviceMesh) -> Step:
    """Return the step."""
    module = whole(shape, weights)
    split(module, mesh["model"])
    rule = adamw(module)
    parameters = list(module.parameters())

    def step(rows: Tensor, rate: float) -> float:
        total = torch.zeros(())
        for piece in rows.chunk(MICROBATCHES):
            loss = loss_of(module(piece[:, :-1]), piece[:, 1:]) / MICROBATCHES
            loss.backward()
            total += loss.detach()
        clip_mixed(parameters)
        update(rule, rate)
        return float(total)

    return step
