"""Forward and backward of one step's share of the batch, whole or as stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

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
from cnai.core.spec.sections import Train
from cnai.models import RowLosses
from cnai.train.batch import Batch
from cnai.train.objective import Objective
from cnai.train.ranks import Ranks

Autocast = Callable[[], AbstractContextManager[object]]


class Engine(Protocol):
    """Runs micro-batches through this rank's part and leaves gradients in its parameters."""

    def run(self, batch: Batch) -> float:
        """Run forward and backward over this data rank's rows.

        Returns:
            The mean loss over these rows on the last stage, 0 on others.
        """
        ...

    def judge(self, batch: Batch) -> Tensor:
        """Run forward only, over as many rows as in a step.

        Returns:
            The mean loss of each row (rows), float64, on the last stage; nothing (0) on others.
        """
        ...


class WholeModel:
    """All layers on one rank (or split and sharded, but not cut into stages)."""

    def __init__(
        self, module: nn.Module, microbatches: int, objective: Objective, autocast: Autocast
    ) -> None:
        self._module = module
        self._microbatches = microbatches
        self._objective = objective
        self._autocast = autocast

    def run(self, batch: Batch) -> float:
        """Run the micro-batches one after the other."""
        for index, piece in enumerate(batch.pieces(self._microbatches)):
            if isinstance(self._module, FSDPModule):
                # Gradients are scattered after every micro-batch, so that none stands whole.
                self._module.set_is_last_backward(index == self._microbatches - 1)
            with self._autocast():
                loss = self._objective(self._module(*piece.inputs, **piece.named), piece.target)
            loss.backward()
        return self._objective.taken()

    def judge(self, batch: Batch) -> Tensor:
        """Run the micro-batches one after the other, forward only."""
        losses = []
        with torch.no_grad(), judging([self._module], self._objective):
            for piece in batch.pieces(self._microbatches):
                with self._autocast():
                    outputs = self._module(*piece.inputs, **piece.named)
                    losses.append(self._objective(outputs, piece.target))
        return torch.cat(losses)


class QuietStage(PipelineStage):
    """A stage that leaves no trace when torch runs it once on made-up numbers to learn shapes.

    That pass would count in the running statistics of a user's module, and draw random numbers that
    a run which was not interrupted does not draw.
    """

    def _forward_metadata_inference(self, *words: Any, **named: Any) -> Any:
        buffers = list(self.submod.buffers())
        before = [buffer.clone() for buffer in buffers]
        with torch.random.fork_rng():
            found = super()._forward_metadata_inference(*words, **named)
        for buffer, value in zip(buffers, before, strict=True):
            # Past autograd, which still holds what that pass left for its backward.
            buffer.data.copy_(value)
        return found


class StagesOfPipeline:
    """The stages that this rank owns; torch's schedule orders the passes and does the sends."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        plan: ParallelPlan,
        ranks: Ranks,
        objective: Objective,
        autocast: Autocast,
    ) -> None:
        place = ranks.place.pipeline
        stages: list[PipelineStage] = [
            QuietStage(
                part,
                stage.index,
                len(plan.stages),
                ranks.device,
                group=ranks.mesh.get_group("pipeline"),
            )
            for part, stage in zip(parts, plan.stages_of(place), strict=True)
        ]
        self._schedule = _schedule_of(stages, plan, objective)
        self._is_first, self._is_last = (place == end for end in plan.ends)
        self._parts = parts
        self._objective = objective
        self._autocast = autocast

    def run(self, batch: Batch) -> float:
        """Run the schedule; only the first stage needs inputs, only the last needs targets."""
        self._flow(self._schedule.step, batch)
        return self._objective.taken()

    def judge(self, batch: Batch) -> Tensor:
        """Run the schedule forward only."""
        with torch.no_grad(), judging(self._parts, self._objective):
            losses = self._flow(self._schedule.eval, batch)
        return torch.cat(losses) if losses else torch.zeros(0, dtype=torch.float64)

    def _flow(self, run: Callable[..., object], batch: Batch) -> list[Tensor]:
        """Send rows through all stages; return the losses of the micro-batches on the last."""
        inputs, named = (batch.inputs, batch.named) if self._is_first else ((), {})
        target = batch.target if self._is_last else None
        losses: list[Tensor] = []
        with self._autocast():
            run(*inputs, **named, target=target, losses=losses, return_outputs=False)
        return losses


def _schedule_of(
    stages: list[PipelineStage], plan: ParallelPlan, objective: Objective
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    kind = get_schedule_class(plan.schedule)
    several = issubclass(kind, PipelineScheduleMulti)
    schedule: PipelineScheduleSingle | PipelineScheduleMulti = kind(
        stages if several else stages[0], plan.microbatches, loss_fn=objective, scale_grads=False
    )
    return schedule


@contextmanager
def judging(parts: Sequence[nn.Module], objective: Objective) -> Iterator[None]:
    """Let the objective judge rows in the block, and leave the parts as they were found."""
    was_training = [part.training for part in parts]
    objective.judging = True
    try:
        for part in parts:
            part.eval()
        yield
    finally:
        objective.judging = False
        for part, training in zip(parts, was_training, strict=True):
            part.train(training)
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    # Without a backward the parameters of the root would stay gathered, and a
                    # checkpoint would see them so.
                    module.reshard()


def engine_for(
    parts: Sequence[nn.Module],
    plan: ParallelPlan,
    ranks: Ranks,
    settings: Train,
    losses: RowLosses | None = None,
) -> Engine:
    """Choose how this rank runs its micro-batches.

    Args:
        losses: Of a user's own module; see `Objective`.
    """
    objective = Objective(settings.z_loss, plan.microbatches, losses)

    def autocast() -> AbstractContextManager[object]:
        return torch.autocast(
            ranks.device.type, dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"
        )

    if plan.layout.pipeline == 1:
        return WholeModel(parts[0], plan.microbatches, objective, autocast)
    return StagesOfPipeline(parts, plan, ranks, objective, autocast)
