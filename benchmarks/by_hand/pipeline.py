"""Layers laid over ranks with torch.distributed.pipelining; also with copies and split layers."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor

from by_hand.step import MICROBATCHES, Step, adamw, average_gradients, loss_of, update
from by_hand.tensor import scale_to, split
from cnai.core.shape import DecoderShape
from cnai.models import Decoder, Weights, fill


def make(shape: DecoderShape, weights: Weights, mesh: DeviceMesh, layers: tuple[int, int]) -> Step:
    """Return the step of one rank of a mesh with the axes pipeline, data and model.

    Args:
        layers: First layer of this rank's stage, and the one after its last.
    """
    pipeline, data, model = (mesh[axis] for axis in ("pipeline", "data", "model"))
    stages, place = pipeline.size(), pipeline.get_local_rank()
    module = Decoder(shape, first_layer=layers[0], end_layer=layers[1])
    fill(module, weights)
    if model.size() > 1:
        split(module, model)
    rule = adamw(module)
    parameters = list(module.parameters())
    losses: list[Tensor] = []

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return loss_of(logits, targets) / MICROBATCHES

    stage = PipelineStage(module, place, stages, torch.device("cpu"), group=pipeline.get_group())
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=loss, scale_grads=False)

    def step(rows: Tensor, rate: float) -> float:
        losses.clear()
        if place == 0:
            schedule.step(rows[:, :-1], return_outputs=False)
        elif place == stages - 1:
            schedule.step(target=rows[:, 1:], losses=losses, return_outputs=False)
        else:
            schedule.step(return_outputs=False)
        _align(parameters)
        if place in {0, stages - 1}:  # the two owners of the tied embedding
            dist.all_reduce(_local(module.embedding.weight), group=pipeline.get_group())
        if data.size() > 1:
            local = [_local(one) for one in parameters]
            average_gradients(local, data.get_group(), data.size())
        tied = module.embedding.weight if hasattr(module, "embedding") else None
        square = 0.0
        for one in parameters:
            copies = data.size() * (1 if isinstance(one, DTensor) else model.size())
            copies *= 2 if one is tied else 1
            square += float(_local(one).norm()) ** 2 / copies
        told = torch.tensor([square, float(sum(losses)) if losses else 0.0])
        dist.all_reduce(told)
        scale_to(parameters, float(told[0]))
        update(rule, rate)
        return float(told[1]) / (data.size() * model.size())

    return step


def _align(parameters: list[nn.Parameter]) -> None:
    """Split gradients as their parameters are; that of a split embedding comes otherwise."""
    for one in parameters:
        if isinstance(one, DTensor) and isinstance(one.grad, DTensor):
            one.grad = one.grad.redistribute(placements=one.placements)


def _local(parameter: Tensor) -> Tensor:
    """Return this rank's numbers of a gradient."""
    if parameter.grad is None:
        raise RuntimeError("a parameter took no part")
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
