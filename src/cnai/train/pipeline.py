"""Forward and backward of one step's share of the batch, whole or as stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    get_schedule_class,
)

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


class StagesOfPipeline:
    """The stages that this rank owns; torch's schedule orders the passes and does the sends."""

    def __init__(
        self, parts: Sequence[nn.Module], plan: ParallelPlan, ranks: Ranks, autocast: Autocast
    ) -> None:
        place = ranks.place.pipeline
        stages = [
            PipelineStage(
                part,
                stage.index,
                len(plan.stages),
                ranks.device,
                group=ranks.mesh.get_group("pipeline"),
            )
            for part, stage in zip(parts, plan.stages_of(place), strict=True)
        ]
        self._schedule = _schedule_of(stages, plan)
        self._is_first, self._is_last = (place == end for end in plan.ends)
        self._autocast = autocast

    def run(self, tokens_RU: Tensor) -> float:
        """Run the schedule; only the first stage needs inputs, only the last needs targets."""
        inputs = (tokens_RU[:, :-1],) if self._is_first else ()
        target = tokens_RU[:, 1:] if self._is_last else None
        losses: list[Tensor] = []
        with self._autocast():
            self._schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        return float(torch.stack(losses).sum()) if losses else 0.0


def _schedule_of(
    stages: list[PipelineStage], plan: ParallelPlan
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    kind = get_schedule_class(plan.schedule)
    pieces = plan.microbatches
    several = issubclass(kind, PipelineScheduleMulti)
    schedule: PipelineScheduleSingle | PipelineScheduleMulti = kind(
        stages if several else stages[0], pieces, loss_fn=_loss_over(pieces), scale_grads=False
    )
    return schedule


def _loss_over(pieces: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of one micro-batch as its share of the mean over all."""
    return lambda logits, target: token_loss(logits, target) / pieces


def engine_for(
    parts: Sequence[nn.Module], plan: ParallelPlan, ranks: Ranks, *, precision: str
) -> Engine:
    """Choose how this rank runs its micro-batches."""

    def autocast() -> AbstractContextManager[object]:
        return torch.autocast(
            ranks.device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16"
        )

    if plan.layout.pipeline == 1:
        return WholeModel(parts[0], plan.microbatches, autocast)
    return StagesOfPipeline(parts, plan, ranks, autocast)
