"""Forward and backward of one step's share of the batch, whole or as a pipeline stage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from cnai.core.layout import ParallelPlan
from cnai.models import token_loss
from cnai.train.ranks import Ranks

Autocast = Callable[[], AbstractContextManager[object]]


class Engine(Protocol):
    """Runs micro-batches through this rank's part and leaves gradients in its parameters."""

    def run(self, tokens_RU: Tensor) -> float:
        """Run forward and backward.

        Args:
            tokens_RU: This data rank's rows, (rows, sequence + 1).

        Returns:
            The mean loss over these rows on the last stage, 0 on others.
        """
        ...


class WholeModel:
    """All layers on one rank (or split and sharded, but not cut into stages)."""

    def __init__(self, module: nn.Module, microbatches: int, autocast: Autocast) -> None:
        self._module = module
        self._microbatches = microbatches
        self._autocast = autocast

    def run(self, tokens_RU: Tensor) -> float:
        """Run the micro-batches one after the other."""
        total = 0.0
        for index, piece in enumerate(tokens_RU.chunk(self._microbatches)):
            if isinstance(self._module, FSDPModule):
                # Gradients are scattered after every micro-batch, so that none stands whole.
                self._module.set_is_last_backward(index == self._microbatches - 1)
            with self._autocast():
                loss = token_loss(self._module(piece[:, :-1]), piece[:, 1:]) / self._microbatches
            loss.backward()
            total += float(loss.detach())
        return total


class StageOfPipeline:
    """One stage; torch's schedule decides the order of passes and does the sends."""

    def __init__(
        self, module: nn.Module, plan: ParallelPlan, ranks: Ranks, autocast: Autocast
    ) -> None:
        stage = PipelineStage(
            module,
            ranks.place.pipeline,
            ranks.layout.pipeline,
            ranks.device,
            group=ranks.mesh.get_group("pipeline"),
        )
        schedule = get_schedule_class(plan.schedule)
        if not issubclass(schedule, PipelineScheduleSingle):
            raise TypeError(f"schedule {plan.schedule} wants several stages a rank")
        share = plan.microbatches
        self._schedule = schedule(
            stage,
            n_microbatches=share,
            loss_fn=lambda logits, target: token_loss(logits, target) / share,
            scale_grads=False,
        )
        self._ranks = ranks
        self._autocast = autocast

    def run(self, tokens_RU: Tensor) -> float:
        """Run the schedule; only the first stage needs inputs, only the last needs targets."""
        inputs, targets = tokens_RU[:, :-1], tokens_RU[:, 1:]
        losses: list[Tensor] = []
        with self._autocast():
            if self._ranks.is_first_stage:
                self._schedule.step(inputs, return_outputs=False)
            elif self._ranks.is_last_stage:
                self._schedule.step(target=targets, losses=losses, return_outputs=False)
            else:
                self._schedule.step(return_outputs=False)
        return float(torch.stack(losses).sum()) if losses else 0.0


def engine_for(module: nn.Module, plan: ParallelPlan, ranks: Ranks, *, precision: str) -> Engine:
    """Choose how this rank runs its micro-batches."""

    def autocast() -> AbstractContextManager[object]:
        return torch.autocast(
            ranks.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"
        )

    if plan.layout.pipeline == 1:
        return WholeModel(module, plan.microbatches, autocast)
    return StageOfPipeline(module, plan, ranks, autocast)
