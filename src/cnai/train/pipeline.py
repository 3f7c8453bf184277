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
from cnai.train.stopwatch import Stopwatch

Autocast = Callable[[], AbstractContextManager[object]]
Loss = Callable[[Any, Tensor | None], Tensor]


class Engine(Protocol):
    """Runs micro-batches through this rank's part and leaves gradients in its parameters."""

    def run(self, batch: Batch) -> float:
        """Run forward and backward over this data rank's rows.

        Under a pipeline these are whole micro-batches. There may be more or fewer than an even
        share of the batch.

        Returns:
            On the last stage the sum of the rows' losses over the rows of an even share, so that
            the mean over the data ranks is that over all rows; 0 on others.
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
        self,
        module: nn.Module,
        piece_rows: int,
        objective: Objective,
        autocast: Autocast,
        watch: Stopwatch,
    ) -> None:
        self._module = module
        self._piece_rows = piece_rows
        self._objective = objective
        self._autocast = autocast
        self._watch = watch

    def run(self, batch: Batch) -> float:
        """Run the micro-batches one after the other."""
        pieces = batch.pieces(self._piece_rows)
        for index, piece in enumerate(pieces):
            if isinstance(self._module, FSDPModule):
                # Gradients are scattered after every micro-batch, so that none stands whole.
                self._module.set_is_last_backward(index == len(pieces) - 1)
            with self._watch.running(0):
                with self._autocast():
                    outputs = self._module(*piece.inputs, **piece.named, **piece.everywhere)
                    loss = self._objective(outputs, piece.target)
                loss.backward()
        return self._objective.taken(len(pieces))

    def judge(self, batch: Batch) -> Tensor:
        """Run the micro-batches one after the other, forward only."""
        losses = []
        with torch.no_grad(), judging([self._module], self._objective):
            for piece in batch.pieces(self._piece_rows):
                with self._autocast():
                    outputs = self._module(*piece.inputs, **piece.named, **piece.everywhere)
                    losses.append(self._objective(outputs, piece.target))
        return torch.cat(losses)


class Stage(PipelineStage):
    """A stage that says how long it computes.

    It leaves no trace when torch runs it once on made-up numbers to learn shapes. That pass would
    count in the running statistics of a user's module, and draw random numbers that a run which was
    not interrupted does not draw. In a V two neighbours on one rank hand gradients on without a
    message; torch 2.13 tries that also while rows are judged and there are none.
    """

    watch: Stopwatch

    def forward_one_chunk(self, *args: Any, **more: Any) -> Any:
        """Run forward of a micro-batch; its input has arrived."""
        with self.watch.running(self.stage_index):
            return super().forward_one_chunk(*args, **more)

    def backward_one_chunk(self, *args: Any, **more: Any) -> Any:
        """Run backward of a micro-batch; its gradient has arrived."""
        with self.watch.running(self.stage_index):
            return super().backward_one_chunk(*args, **more)

    def backward_weight_one_chunk(self, *args: Any, **more: Any) -> Any:
        """Run the part of backward that gives the gradients of the weights."""
        with self.watch.running(self.stage_index):
            return super().backward_weight_one_chunk(*args, **more)

    def get_local_bwd_output(self, mb_index: int) -> Any:
        """Return the gradient for the neighbour on this rank, None while rows are judged."""
        if not self.has_backward:
            return None
        return super().get_local_bwd_output(mb_index)  # type: ignore[no-untyped-call]

    def set_local_bwd_input(self, next_stage_bwd_outputs: Any, mb_index: int) -> None:
        """Take the gradient of the neighbour on this rank."""
        if self.has_backward:
            super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)

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
    """The stages that this rank owns; torch's schedule orders the passes and does the sends.

    A schedule is made for a number of micro-batches. When the share of this rank's pipeline changes
    another is made; that of an even share stays, because rows are judged in it.
    """

    def __init__(
        self,
        parts: Sequence[nn.Module],
        plan: ParallelPlan,
        ranks: Ranks,
        objective: Objective,
        autocast: Autocast,
        watch: Stopwatch,
    ) -> None:
        place = ranks.place.pipeline
        self._plan = plan
        self._ranks = ranks
        self._watch = watch
        self._is_first, self._is_last = (place == end for end in plan.ends)
        self._parts = parts
        self._objective = objective
        self._autocast = autocast
        self._schedules: dict[int, PipelineScheduleSingle | PipelineScheduleMulti] = {}

    def run(self, batch: Batch) -> float:
        """Run the schedule; only the first stage needs inputs, only the last needs targets."""
        pieces = batch.rows // self._plan.microbatch_rows
        self._flow(self._schedule(pieces).step, batch)
        return self._objective.taken(pieces)

    def judge(self, batch: Batch) -> Tensor:
        """Run the schedule forward only."""
        schedule = self._schedule(self._plan.microbatches)
        with torch.no_grad(), judging(self._parts, self._objective):
            losses = self._flow(schedule.eval, batch)
        return torch.cat(losses) if losses else torch.zeros(0, dtype=torch.float64)

    def _schedule(self, pieces: int) -> PipelineScheduleSingle | PipelineScheduleMulti:
        if pieces not in self._schedules:
            even = self._plan.microbatches
            self._schedules = {n: one for n, one in self._schedules.items() if n == even}
            self._schedules[pieces] = _schedule_of(self._stages(), self._plan, pieces, self._loss)
        return self._schedules[pieces]

    def _loss(self, outputs: Any, target: Tensor | None = None) -> Tensor:
        """Return the loss of a micro-batch, which torch computes apart from the last stage."""
        with self._watch.running(len(self._plan.stages) - 1):
            return self._objective(outputs, target)

    def _stages(self) -> list[Stage]:
        stages = []
        for part, stage in zip(
            self._parts, self._plan.stages_of(self._ranks.place.pipeline), strict=True
        ):
            made = Stage(
                part,
                stage.index,
                len(self._plan.stages),
                self._ranks.device,
                group=self._ranks.mesh.get_group("pipeline"),
            )
            made.watch = self._watch
            stages.append(made)
        return stages

    def _flow(self, run: Callable[..., object], batch: Batch) -> list[Tensor]:
        """Send rows through all stages; return the losses of the micro-batches on the last."""
        inputs, named = (batch.inputs, batch.named) if self._is_first else ((), {})
        target = batch.target if self._is_last else None
        losses: list[Tensor] = []
        with self._autocast():
            run(
                *inputs,
                **named,
                **batch.everywhere,
                target=target,
                losses=losses,
                return_outputs=False,
            )
        return losses


def _schedule_of(
    stages: Sequence[Stage], plan: ParallelPlan, pieces: int, loss: Loss
) -> PipelineScheduleSingle | PipelineScheduleMulti:
    kind = get_schedule_class(plan.schedule)
    several = issubclass(kind, PipelineScheduleMulti)
    schedule: PipelineScheduleSingle | PipelineScheduleMulti = kind(
        list(stages) if several else stages[0], pieces, loss_fn=loss, scale_grads=False
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
    watch: Stopwatch,
    losses: RowLosses | None = None,
) -> Engine:
    """Choose how this rank runs its micro-batches.

    Args:
        watch: Counts the time of each stage.
        losses: Of a user's own module; see `Objective`.
    """
    objective = Objective(settings.z_loss, plan.microbatches, plan.microbatch_rows, losses)

    def autocast() -> AbstractContextManager[object]:
        return torch.autocast(
            ranks.device.type, dtype=torch.bfloat16, enabled=settings.precision == "bfloat16"
        )

    if plan.layout.pipeline == 1:
        return WholeModel(parts[0], plan.microbatch_rows, objective, autocast, watch)
    return StagesOfPipeline(parts, plan, ranks, objective, autocast, watch)
