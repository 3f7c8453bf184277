"""What a training rank is made of: the composition root of a worker process.

The fork server imports this module once, so everything heavy is imported here at the top.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch import nn

from cnai.core.batches import BatchReader
from cnai.core.errors import CnaiError
from cnai.core.events import Event, RankFailed, RankReady, StepDone, StepSkipped
from cnai.core.layout import ParallelPlan
from cnai.core.records import convert, decode
from cnai.core.runfolder import RunFolder
from cnai.core.shape import DecoderShape
from cnai.core.spec import RunSpec
from cnai.flows.balancing import rows_of
from cnai.flows.data import reader_of
from cnai.flows.folder import spec_of
from cnai.flows.model import base_of, first_weights
from cnai.flows.module import built, losses_of
from cnai.flows.shape import shape_of, steps_of
from cnai.flows.worker_order import WorkerOrder
from cnai.models.user_module import check_flow
from cnai.train.agreement import kept_buffers
from cnai.train.answering import answering
from cnai.train.batch import batch_of
from cnai.train.build import build_decoder
from cnai.train.checkpoint import Checkpoints
from cnai.train.forkserver import RankContext
from cnai.train.loop import train
from cnai.train.module_task import ModuleTask
from cnai.train.modules import build_module, summed_parameters
from cnai.train.probe_record import Sink, careful_sink
from cnai.train.probe_trainer import ProbeSettings
from cnai.train.ranks import Ranks, joined
from cnai.train.standing import Page, PagedReader
from cnai.train.trainer import Trainer, TrainJob


def train_rank(context: RankContext) -> int:
    """Be one rank of a run until training is done, or somebody asks to stop.

    Returns:
        The exit code of the process. A CnaiError is left as an event, so that the flow can show it
        as its own; anything else is a traceback in the rank's log.
    """
    start = time.monotonic()
    order = convert(WorkerOrder, context.payload, where="order")
    run = RunFolder(Path(order.run))
    with run.writer(f"rank-{context.rank}") as writer:
        try:
            with answering(run.standing, context.rank, order.resume_step) as page:
                _train(context, order, run, page, _noted(writer.write, page), start)
        except CnaiError as error:
            writer.write(
                RankFailed(
                    time_unix=time.time(),
                    rank=context.rank,
                    attempt=context.attempt,
                    code=error.code,
                    message=error.message,
                    hint=error.hint,
                    where=error.where,
                )
            )
            sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
            return error.exit_code
    return 0


def _noted(write: Callable[[Event], None], page: Page) -> Callable[[Event], None]:
    """Note each finished step on the page too."""

    def record(event: Event) -> None:
        write(event)
        if isinstance(event, StepDone | StepSkipped):
            page.enter("after", step=event.step)

    return record


def _train(
    context: RankContext,
    order: WorkerOrder,
    run: RunFolder,
    page: Page,
    record: Callable[..., None],
    start: float,
) -> None:
    spec = spec_of(run)
    plan_file = run.attempt_plan(context.attempt)
    plan = decode(ParallelPlan, plan_file.read_bytes(), where=str(plan_file))
    shape = shape_of(spec)
    job = _job(spec, plan, order, context.attempt)
    membership = joined(
        plan,
        context.rank,
        store=context.store,
        attempt=context.attempt,
        timeout_seconds=spec.train.timeout_seconds,
        tied=shape is not None and shape.tied_head,
    )
    reader = PagedReader(reader_of(order.dataset, spec, plan), page)
    with membership as ranks:
        parts, task = _parts(spec, shape, plan, ranks, reader)
        # Running statistics are means over ranks, which count only while their rows are even.
        balancer = None if kept_buffers(parts) else rows_of(spec, plan)
        trainer = Trainer(job, ranks, parts, task, balancer)
        _probe(spec, trainer, run, record)
        record(
            RankReady(
                time_unix=time.time(),
                rank=context.rank,
                attempt=context.attempt,
                pid=os.getpid(),
                host=socket.gethostname(),
                parameters=trainer.parameters,
                trainable=trainer.trainable,
                frozen=trainer.frozen,
                seconds=time.monotonic() - start,
            )
        )
        checkpoints = Checkpoints(
            run,
            ranks,
            keep=spec.checkpoint.keep,
            plan_digest=plan.digest,
            background=spec.checkpoint.mode == "async",
            base=base_of(spec, shape) if shape is not None else None,
        )
        train(job, trainer, reader, checkpoints, record)


def _job(spec: RunSpec, plan: ParallelPlan, order: WorkerOrder, attempt: int) -> TrainJob:
    """Say to the loop what spec, plan and order say."""
    return TrainJob(
        plan=plan,
        settings=spec.train,
        steps=steps_of(spec),
        attempt=attempt,
        resume_step=order.resume_step,
        checkpoint_every=spec.checkpoint.every_steps,
        update_ratio_every=spec.monitor.update_ratio_every,
        separator=order.dataset.separator,
        course=order.course,
        skips_at_most=spec.monitor.reactions.skip_nonfinite,
    )


def _probe(spec: RunSpec, trainer: Trainer, run: RunFolder, record: Sink) -> None:
    """Let a probe look into the layers, as the spec says."""
    asked = spec.monitor
    settings = ProbeSettings(
        layers_every=asked.layers_every,
        activations_every=asked.activations_every,
        ranks_every=asked.ranks_every,
    )
    if settings.measures:
        trainer.look_inside(settings, careful_sink(run, record))


def _parts(
    spec: RunSpec,
    shape: DecoderShape | None,
    plan: ParallelPlan,
    ranks: Ranks,
    reader: BatchReader,
) -> tuple[tuple[nn.Module, ...], ModuleTask | None]:
    """Build this rank's parts; of a user's module also say how it is trained."""
    if shape is not None:
        return build_decoder(shape, plan, ranks, first_weights(spec, shape), spec.train), None
    module, table = built(spec)
    judges_itself = spec.model.loss == "own"
    if plan.layout.pipeline > 1:
        batch = batch_of(reader.validation(1), judges_itself=judges_itself)
        check_flow(module, table, batch.inputs, batch.named, name=spec.model.module or "")
    parts = build_module(module, table, plan, ranks, spec.train)
    task = ModuleTask(
        losses=losses_of(spec),
        judges_itself=judges_itself,
        layers=table.layers,
        summed=summed_parameters(parts, table, plan.layout),
    )
    return parts, task
