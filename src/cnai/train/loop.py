"""The loop that every rank runs: rows, forward and backward, norm, update, record, save.

One collective a step carries everything that all ranks must know: the loss, the squared norm of
the gradient and whether somebody was asked to stop, so that all stop after the same step.
"""

from __future__ import annotations

import hashlib
import math
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from cnai.core.balance import Balancer, Move
from cnai.core.batches import BatchReader
from cnai.core.errors import RunError
from cnai.core.events import EvaluationDone, Rebalanced, StepDone
from cnai.core.layout import ParallelPlan, Place, Sharding
from cnai.core.spec.sections import Train
from cnai.train.agreement import check_whole_gradients, kept_buffers, share_buffers
from cnai.train.batch import batch_of
from cnai.train.checkpoint import Checkpoints, Record, State
from cnai.train.determinism import make_deterministic
from cnai.train.evaluation import Evaluation
from cnai.train.module_task import ModuleTask
from cnai.train.noise import NoiseScale
from cnai.train.optimizer import Optimizer, learning_rate
from cnai.train.pipeline import engine_for
from cnai.train.ranks import Ranks
from cnai.train.shards import Shard, local_of, shards_of, squared_norm
from cnai.train.sharing import RowShares
from cnai.train.stopwatch import Stopwatch

_LAYER = re.compile(r"\.\d+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """What the loop needs to know.

    Attributes:
        steps: Steps of the whole run, also those done by earlier attempts.
        resume_step: Steps already done, 0 for a new run.
        checkpoint_every: Steps between checkpoints.
        update_ratio_every: Steps between measurements of the update ratio, 0 = never.
        separator: Token with which a document begins, where none is to see another.
    """

    plan: ParallelPlan
    settings: Train
    steps: int
    attempt: int
    resume_step: int
    checkpoint_every: int
    update_ratio_every: int
    separator: int | None = None


class StopRequest:
    """Set by SIGTERM: finish the step, save, and leave."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


class Trainer:
    """One rank's state between steps: its parts of the model and of the optimizer.

    Args:
        balancer: Shares the rows out over the data ranks; None = evenly, always.
    """

    def __init__(
        self,
        job: TrainJob,
        ranks: Ranks,
        parts: Sequence[nn.Module],
        task: ModuleTask | None = None,
        balancer: Balancer | None = None,
    ) -> None:
        if job.settings.deterministic:
            make_deterministic()
        self._job = job
        self._ranks = ranks
        self._batch_of = partial(
            batch_of,
            device=ranks.device,
            judges_itself=task is not None and task.judges_itself,
            separator=job.separator,
        )
        self._shards = shards_of(parts, ranks, task)
        self._checks_gradients = task is not None
        self._optimizer = Optimizer(self._shards, job.settings)
        self._parts = tuple(parts)
        losses = task.losses if task else None
        self._watch = Stopwatch(ranks.device)
        self._engine = engine_for(parts, job.plan, ranks, job.settings, self._watch, losses)
        self._shares = RowShares(job.plan, ranks.place, balancer)
        self._move: Move | None = None
        self._evaluation = Evaluation(
            job.plan,
            ranks,
            self._engine,
            job.settings.evaluate_sequences,
            self._batch_of,
        )
        self._noise: NoiseScale | None = None
        layout = ranks.layout
        if layout.data > 1 and layout.expert == 1 and job.plan.sharding is Sharding.NONE:
            self._noise = NoiseScale(self._shares.typical_rows, job.plan.global_batch)

    @property
    def parameters(self) -> int:
        """Numbers that this rank holds."""
        return sum(local_of(value).numel() for value in self._parameters().values())

    @property
    def trainable(self) -> int:
        """Those of them that training changes."""
        return sum(shard.local.numel() for shard in self._shards)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Names of the parameters that training leaves alone, `*` for the layer."""
        parameters = self._parameters().items()
        names = (_LAYER.sub(".*.", name) for name, one in parameters if not one.requires_grad)
        return tuple(dict.fromkeys(names))

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {name: one for part in self._parts for name, one in part.named_parameters()}

    def state(self) -> State:
        """Return what a checkpoint holds, sharing storage: what is trained, and nothing frozen.

        Beside it the running statistics of a user's module, where there are any.
        """
        model: dict[str, Tensor] = {s.name: s.parameter.detach() for s in self._shards}
        state = {"model": model, "optimizer": self._optimizer.state()}
        buffers = kept_buffers(self._parts)
        return state | ({"buffers": buffers} if buffers else {})

    def share_buffers(self) -> None:
        """Give all copies the same running statistics; every rank calls this at the same step."""
        share_buffers(kept_buffers(self._parts), self._ranks)

    def step(self, step: int, reader: BatchReader, *, stop: bool) -> tuple[StepDone, bool]:
        """Do one step.

        Args:
            step: Zero-based step.
            stop: Whether this rank was asked to stop.

        Returns:
            The record, and whether any rank was asked to stop.

        Raises:
            RunError: Loss or gradient is not finite.
        """
        start = time.perf_counter()
        # What is random in a user's module then depends on the step alone, also after a resume.
        _seed_draws(_seed_of_step(self._job.settings.seed, step, self._ranks.place), self._ranks)
        first, share = self._shares.first, self._shares.count
        rows = reader.rows(step, first, share)
        if step + 1 < self._job.steps:
            reader.prefetch(step + 1, first, share)
        batch = self._batch_of(rows)
        waited = time.perf_counter() - start
        place, layout = self._ranks.place, self._ranks.layout
        self._watch.taken()  # of an evaluation before
        loss = self._engine.run(batch.positions(place.context, layout.context))
        own_square = self._reduce_gradients()
        seconds = self._watch.taken()
        message = self._shares.message(time.perf_counter() - start, seconds)
        loss, norm, small_square, stopping, heard = self._agree(loss, own_square, stop, message)
        agreed = time.perf_counter() - start
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise RunError(
                f"loss {loss:g} with gradient norm {norm:g} at step {step + 1}",
                where="train.learning_rate",
                hint="lower `train.learning_rate`, or set `train.clip_norm: 1.0`; the last "
                "checkpoint is kept",
            )
        rate = learning_rate(self._job.settings, step, self._job.steps)
        ratio = self._update(norm, rate, measure=self._measures(step))
        record = StepDone(
            time_unix=time.time(),
            rank=self._ranks.place.rank,
            attempt=self._job.attempt,
            step=step + 1,
            loss=loss,
            grad_norm=norm,
            update_ratio=ratio,
            learning_rate=rate,
            tokens=self._job.plan.global_batch * batch.tokens_a_row,
            step_seconds=time.perf_counter() - start,
            data_wait_seconds=waited,
            noise_scale=self._noise.add(small_square, norm**2) if self._noise else None,
            rows=share,
            stage_seconds=tuple(seconds[stage] for stage in sorted(seconds)),
            wait_seconds=max(0.0, agreed - waited - sum(seconds.values())),
        )
        self._move = self._shares.decide(step + 1, heard)
        if self._noise:
            self._noise.small = self._shares.typical_rows
        return record, stopping

    def moved(self, step: int) -> Rebalanced | None:
        """Return how the step shared the rows out anew for those that follow; None = as before."""
        if self._move is None:
            return None
        return Rebalanced(
            time_unix=time.time(),
            attempt=self._job.attempt,
            step=step,
            moved="rows",
            before=self._move.before,
            after=self._move.after,
            gain=self._move.gain,
            reason=self._move.reason,
            is_rollback=self._move.is_rollback,
        )

    def evaluates_after(self, done: int) -> bool:
        """Tell whether the model is measured on validation rows after so many steps."""
        every = self._job.settings.evaluate_every
        return every > 0 and (done % every == 0 or done == self._job.steps)

    def evaluate(self, step: int, reader: BatchReader) -> EvaluationDone:
        """Measure the model on validation rows; all ranks do so after the same step."""
        self.share_buffers()
        return self._evaluation.measure(reader, step=step, attempt=self._job.attempt)

    def _reduce_gradients(self) -> float:
        """Make every copy of a parameter see the gradient of the whole batch.

        Returns:
            This rank's part of the mean squared norm of the data ranks' own gradients; 0 where the
            noise scale is not measured.
        """
        self._ranks.add_partial([s.local_gradient() for s in self._shards if s.is_partial])
        tied = [s.local_gradient() for s in self._shards if s.name == "embedding.weight"]
        if tied:
            self._ranks.add_tied(tied)
        if self._checks_gradients:
            check_whole_gradients(self._shards, self._ranks)
            self._checks_gradients = False
        copied = [shard for shard in self._shards if not shard.is_sharded]
        whole = [shard.local_gradient() for shard in copied if not shard.is_expert]
        own = 0.0
        if self._noise:
            # The rows of a data rank are shared out over the context axis.
            self._ranks.average_over_context(whole)
            own = self._square() * self._shares.own_scale**2
        self._ranks.average(whole)
        self._ranks.average_experts([s.local_gradient() for s in copied if s.is_expert])
        return own

    def _square(self) -> float:
        """Return this rank's part of the squared norm of the gradient.

        Numbers that several ranks hold count once: each contributes its part divided by the number
        of its copies.
        """
        squares = squared_norm([shard.local_gradient() for shard in self._shards])
        return sum(
            square / shard.copies for square, shard in zip(squares, self._shards, strict=True)
        )

    def _agree(
        self, loss: float, own_square: float, stop: bool, more: list[float]
    ) -> tuple[float, float, float, bool, list[float]]:
        """Share loss, gradient norms, wish to stop and speeds over all ranks in one message."""
        layout = self._ranks.layout
        own = [loss / (layout.copies * layout.model), self._square(), own_square, float(stop)]
        total_loss, total_square, small_square, stops, *heard = self._ranks.total([*own, *more])
        return total_loss, math.sqrt(total_square), small_square, stops > 0, heard

    def _measures(self, step: int) -> bool:
        every = self._job.update_ratio_every
        return every > 0 and step % every == 0

    def _update(self, norm: float, rate: float, *, measure: bool) -> float | None:
        """Clip, update, forget the gradients; return the update ratio if it is to be measured."""
        limit = self._job.settings.clip_norm
        if limit is not None and norm > limit:
            torch._foreach_mul_([s.local_gradient() for s in self._shards], limit / norm)
        before = [shard.local.detach().clone() for shard in self._shards] if measure else []
        self._optimizer.step(rate)
        self._optimizer.zero()
        return _update_ratio(self._shards, before) if measure else None


def _seed_draws(seed: int, ranks: Ranks) -> None:
    """Seed what draws on this rank's devices.

    torch.manual_seed would queue a call, with its stack, for a GPU that may never come.
    """
    torch.default_generator.manual_seed(seed)
    if ranks.device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _seed_of_step(seed: int, step: int, place: Place) -> int:
    """Return a seed that stages and copies of the model do not share, but a split layer does."""
    words = f"{seed} {step} {place.pipeline} {place.data}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:8])


def _update_ratio(shards: list[Shard], before: list[Tensor]) -> float:
    """Return the norm of the update over the norm of the weights before it."""
    change = torch._foreach_sub([shard.local.detach() for shard in shards], before)
    weights = sum(squared_norm(before))
    return math.sqrt(sum(squared_norm(list(change))) / weights) if weights else 0.0


def train(
    job: TrainJob,
    trainer: Trainer,
    reader: BatchReader,
    checkpoints: Checkpoints,
    record: Record,
) -> int:
    """Train from `resume_step` to `steps`, or until somebody is asked to stop.

    Args:
        record: Takes the events of this rank.

    Returns:
        Steps done.
    """
    stop = StopRequest()
    if job.resume_step:
        checkpoints.load(job.resume_step, trainer.state())
    done = job.resume_step
    stopping = False
    with checkpoints:
        while done < job.steps and not stopping:
            event, stopping = trainer.step(done, reader, stop=stop.asked)
            done += 1
            record(event)
            moved = trainer.moved(done)
            if moved is not None and event.rank == 0:
                record(moved)
            checkpoints.check()
            last = stopping or done == job.steps
            if trainer.evaluates_after(done):
                measured = trainer.evaluate(done, reader)
                if event.rank == 0:
                    record(measured)
            if last or done % job.checkpoint_every == 0:
                trainer.share_buffers()
                checkpoints.save(done, trainer.state(), record, last=last)
    return done
