"""One step of a rank: rows, forward and backward, norm, update, record.

One collective a step carries everything that all ranks must know: the loss, the squared norm of
the gradient and what somebody was asked for, so that all stop or save after the same step.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from cnai.core.balance import Balancer, Move
from cnai.core.batches import BatchReader
from cnai.core.course import Course
from cnai.core.errors import RunError
from cnai.core.events import EvaluationDone, Rebalanced, StepDone, StepSkipped
from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.spec.sections import Train
from cnai.core.vectors import LayersMeasured
from cnai.train.agreement import check_whole_gradients, kept_buffers, share_buffers
from cnai.train.batch import Batch, batch_of
from cnai.train.checkpoint import State
from cnai.train.determinism import make_deterministic, seed_step
from cnai.train.evaluation import Evaluation
from cnai.train.module_task import ModuleTask
from cnai.train.noise import NoiseScale
from cnai.train.optimizer import Optimizer, learning_rate
from cnai.train.pipeline import engine_for
from cnai.train.probe_record import Sink
from cnai.train.probe_trainer import ProbeSettings, TrainerProbe
from cnai.train.ranks import Ranks
from cnai.train.shards import local_of, shards_of, squared_norm, squares_of
from cnai.train.sharing import RowShares
from cnai.train.stopwatch import Stopwatch
from cnai.train.wishes import Wishes

_LAYER = re.compile(r"\.\d+\.")
_NO_WISHES = Wishes()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """What the loop needs to know.

    Attributes:
        steps: Steps of the whole run, also those done by earlier attempts.
        resume_step: Steps already done, 0 for a new run.
        checkpoint_every: Steps between checkpoints.
        update_ratio_every: Steps between measurements of the update ratio, 0 = never.
        separator: Token with which a document begins, where none is to see another.
        course: What was changed for the steps of the run since it began.
        skips_at_most: Steps in a row that are passed over when their loss or gradient is not
            finite; 0 = such a step ends the run.
    """

    plan: ParallelPlan
    settings: Train
    steps: int
    attempt: int
    resume_step: int
    checkpoint_every: int
    update_ratio_every: int
    separator: int | None = None
    course: Course = field(default_factory=Course)
    skips_at_most: int = 0


class Trainer:
    """One rank's state between steps: its parts of the model and of the optimizer.

    Attributes:
        shards: The numbers that it trains.
        probe: Looks into the layers; None = nobody does.

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
        self.shards = shards_of(parts, ranks, task)
        self._checks_gradients = task is not None
        self._optimizer = Optimizer(self.shards, job.settings)
        self._parts = tuple(parts)
        self.probe: TrainerProbe | None = None
        losses = task.losses if task else None
        self._watch = Stopwatch(ranks.device)
        self._engine = engine_for(parts, job.plan, ranks, job.settings, self._watch, losses)
        self._shares = RowShares(job.plan, ranks.place, balancer)
        self._move: Move | None = None
        self._skipped_in_a_row = 0
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
        return sum(shard.local.numel() for shard in self.shards)

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
        model: dict[str, Tensor] = {s.name: s.parameter.detach() for s in self.shards}
        state = {"model": model, "optimizer": self._optimizer.state()}
        buffers = kept_buffers(self._parts)
        return state | ({"buffers": buffers} if buffers else {})

    def share_buffers(self) -> None:
        """Give all copies the same running statistics; every rank calls this at the same step."""
        share_buffers(kept_buffers(self._parts), self._ranks)

    def step(
        self, step: int, reader: BatchReader, asked: Wishes = _NO_WISHES
    ) -> tuple[StepDone | StepSkipped, Wishes]:
        """Do one step.

        Args:
            step: Zero-based step.
            asked: What this rank was asked for.

        Returns:
            The record, and what any rank was asked for.

        Raises:
            RunError: Loss or gradient is not finite, and may not be passed over.
        """
        start = time.perf_counter()
        # What is random in a user's module then depends on the step alone, also after a resume.
        seed_step(self._job.settings.seed, step, self._ranks.place, self._ranks.device)
        share = self._shares.count
        batch = self._taken(step, reader)
        waited = time.perf_counter() - start
        place, layout = self._ranks.place, self._ranks.layout
        self._watch.taken()  # of an evaluation before
        mine = batch.positions(place.context, layout.context)
        loss = self._engine.run(mine)
        own_square = self._reduce_gradients()
        seconds = self._watch.taken()
        squares = self._squares()
        words = self.probe.words(step, squares) if self.probe else []
        message = [*words, *self._shares.message(time.perf_counter() - start, seconds)]
        own = [loss / (layout.copies * layout.model), self._whole(squares), own_square]
        loss, norm, small_square, wishes, heard = self._agree(own, asked, message)
        agreed = time.perf_counter() - start
        seen = self.probe.heard(step, heard[: len(words)]) if self.probe else None
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"loss {loss:g} with gradient norm {norm:g} at step {step + 1}"
            return self._skipped(step, what, seen, mine), wishes
        self._skipped_in_a_row = 0
        rate = learning_rate(self._job.settings, step, self._job.steps)
        rate *= self._job.course.rate_factor(step)
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
        self._share_out(step + 1, heard[len(words) :])
        return record, wishes

    def _share_out(self, done: int, heard: list[float]) -> None:
        """Share the rows of the next step out, as the speeds of this one say."""
        self._move = self._shares.decide(done, heard)
        if self._noise:
            self._noise.small = self._shares.typical_rows

    def _skipped(
        self, step: int, what: str, seen: LayersMeasured | None, mine: Batch
    ) -> StepSkipped:
        """Pass over a step with a number that is not finite, and say where that arose.

        Raises:
            RunError: Too many in a row were passed over.
        """
        if self.probe and seen:
            what += f", first in {self.probe.origin(seen, lambda: self._engine.run(mine))}"
        self._optimizer.zero()
        self._move = None
        if self._skipped_in_a_row < self._job.skips_at_most:
            self._skipped_in_a_row += 1
            return StepSkipped(
                time_unix=time.time(),
                rank=self._ranks.place.rank,
                attempt=self._job.attempt,
                step=step + 1,
                message=what,
            )
        raise RunError(
            what,
            where="train.learning_rate",
            hint="lower `train.learning_rate`, or set `train.clip_norm: 1.0`; the last "
            "checkpoint is kept",
        )

    def _taken(self, step: int, reader: BatchReader) -> Batch:
        """Take this rank's rows of a step, and let those of the next be fetched."""
        first, share = self._shares.first, self._shares.count
        course = self._job.course
        rows = reader.rows(course.data_step(step), first, share)
        if step + 1 < self._job.steps:
            reader.prefetch(course.data_step(step + 1), first, share)
        if self.probe:
            self.probe.begin(step, rows)
        return self._batch_of(rows)

    def look_inside(self, settings: ProbeSettings, sink: Sink) -> None:
        """Let a probe look into the layers; all ranks call this, before the first step."""
        self.probe = TrainerProbe(
            settings,
            self.shards,
            self._parts,
            self._ranks,
            self._job.attempt,
            sink,
            compiled=self._job.settings.compile,
        )

    def measure_rank(self, done: int) -> None:
        """Let this rank measure itself after so many steps, when it is time to."""
        if self.probe:
            self.probe.measure_rank(done, self._optimizer.rules)

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
        self._ranks.add_partial([s.local_gradient() for s in self.shards if s.is_partial])
        tied = [s.local_gradient() for s in self.shards if s.name == "embedding.weight"]
        if tied:
            self._ranks.add_tied(tied)
        if self._checks_gradients:
            check_whole_gradients(self.shards, self._ranks)
            self._checks_gradients = False
        copied = [shard for shard in self.shards if not shard.is_sharded]
        whole = [shard.local_gradient() for shard in copied if not shard.is_expert]
        own = 0.0
        if self._noise:
            # The rows of a data rank are shared out over the context axis.
            self._ranks.average_over_context(whole)
            own = self._whole(self._squares()) * self._shares.own_scale**2
        self._ranks.average(whole)
        self._ranks.average_experts([s.local_gradient() for s in copied if s.is_expert])
        return own

    def _squares(self) -> list[float]:
        return squared_norm([shard.local_gradient() for shard in self.shards])

    def _whole(self, squares: Sequence[float]) -> float:
        """Return this rank's part of a squared norm, out of those of its shards.

        Numbers that several ranks hold count once: each contributes its part divided by the number
        of its copies.
        """
        return sum(
            square / shard.copies for square, shard in zip(squares, self.shards, strict=True)
        )

    def _agree(
        self, own: list[float], asked: Wishes, more: list[float]
    ) -> tuple[float, float, float, Wishes, list[float]]:
        """Share loss, gradient norms, wishes and more over all ranks in one message."""
        words = [*own, float(asked.stop), float(asked.save), *more]
        loss, square, small_square, stops, saves, *heard = self._ranks.total(words)
        wishes = Wishes(stop=stops > 0, save=saves > 0)
        return loss, math.sqrt(square), small_square, wishes, heard

    def _measures(self, step: int) -> bool:
        every = self._job.update_ratio_every
        return every > 0 and step % every == 0

    def _update(self, norm: float, rate: float, *, measure: bool) -> float | None:
        """Clip, update, forget the gradients; return the update ratio if it is to be measured."""
        limit = self._job.settings.clip_norm
        if limit is not None and norm > limit:
            torch._foreach_mul_([s.local_gradient() for s in self.shards], limit / norm)
        before = [shard.local.detach().clone() for shard in self.shards] if measure else []
        self._optimizer.step(rate)
        self._optimizer.zero()
        return self._update_ratio(before) if measure else None

    def _update_ratio(self, before: list[Tensor]) -> float:
        """Return the norm of the update over the norm of the weights before it."""
        change = torch._foreach_sub([shard.local.detach() for shard in self.shards], before)
        changes, weights = squares_of(list(change)), squares_of(before)
        if self.probe:
            self.probe.updated(changes, weights)
        return math.sqrt(float(changes.sum() / weights.sum())) if weights.any() else 0.0
