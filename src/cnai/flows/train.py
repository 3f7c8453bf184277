"""`ai-cli train`: start the ranks and keep them going until the last step is done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from cnai.core.dataset import Dataset
from cnai.core.errors import RunError, SpecError
from cnai.core.fleet import Phase
from cnai.core.layout import ParallelPlan
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.flows.doors import Doors, local_doors
from cnai.flows.here import check_is_here
from cnai.flows.listener import Listener
from cnai.flows.scale import forget_outdated
from cnai.flows.stopping import stop_wishes
from cnai.flows.supervisor import Supervisor
from cnai.monitor import Goodput, RunProgress, serve_metrics
from cnai.schedule import allocate
from cnai.train.compiler import missing_compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a training went.

    Attributes:
        loss: Training loss of the last step, nats per token.
        seconds: From the first attempt of this command to its end.
        tokens_per_second: Median over the last steps.
        restarts: Attempts after the first, over the life of the run.
        layout: Layout of the last attempt.
        goodput: What the time of the run was spent on, over its whole life.
    """

    steps: int
    loss: float
    first_loss: float
    seconds: float
    tokens_per_second: float
    restarts: int
    checkpoint: str
    layout: str = ""
    goodput: Goodput | None = None


def train_run(
    spec: RunSpec,
    run: RunFolder,
    plan: ParallelPlan,
    manifest: Dataset,
    listener: Listener,
    doors: Doors | None = None,
) -> TrainResult:
    """Train a run to its last step, or go on with it.

    Args:
        doors: To other machines than this one.

    Raises:
        SpecError: The spec wants machines that this version cannot start.
        PlanError: An elastic run has no room for any layout.
        RunError: Ranks were lost more often than `train.max_restarts` allows.
        DataError: Every checkpoint is damaged.
        Interrupted: The user stopped it; a checkpoint was saved.
    """
    check_is_here(spec)
    doors = doors or local_doors(spec)
    forget_outdated(run, spec)
    if not spec.train.elastic:  # which takes what there is
        allocation = allocate(
            run.name, Phase.TRAIN, plan.layout.ranks, doors.fleet(), group=plan.layout.model
        )
        listener.note(allocation.reason)
    if spec.train.compile and (missing := missing_compiler()):
        listener.warn(f"{missing}; the layers run as they are")
    if spec.train.float8 and find_spec("torchao") is None:
        raise SpecError(
            "products in 8-bit floats need the package torchao, which is not installed",
            where="train.float8",
            hint="pip install 'cnai[float8]', or remove `train.float8`",
        )
    with (
        run.writer("agent") as agent,
        _metrics(spec, run, listener),
        doors.gang,
        stop_wishes() as wish,
    ):
        supervisor = Supervisor(spec, run, plan, doors, agent, listener, wish)
        progress = supervisor.supervise(manifest)
        return _result(run, progress, supervisor.seconds)


def _result(run: RunFolder, progress: RunProgress, seconds: float) -> TrainResult:
    steps = progress.steps or progress.step
    return TrainResult(
        steps=steps,
        loss=progress.loss if progress.loss is not None else float("nan"),
        first_loss=progress.first_loss if progress.first_loss is not None else float("nan"),
        seconds=seconds,
        tokens_per_second=progress.tokens_per_second or 0.0,
        restarts=progress.attempt or 0,
        checkpoint=str(run.checkpoint(steps)),
        layout=progress.layout or "",
        goodput=progress.goodput,
    )


@contextmanager
def _metrics(spec: RunSpec, run: RunFolder, listener: Listener) -> Iterator[None]:
    """Serve `/metrics` while training, if the spec asks for it."""
    port = spec.monitor.prometheus_port
    if port is None:
        yield
        return
    with serve_metrics(run, port) as server:
        listener.note(f"metrics at http://127.0.0.1:{server.port}/metrics")
        yield


def stop_run(run: RunFolder) -> int | None:
    """Ask the process that works on a run to stop; return its id, None when there is none.

    Raises:
        RunError: The process belongs to another user.
    """
    owner = run.owner()
    if owner is None:
        return None
    try:
        os.kill(owner, signal.SIGTERM)
    except ProcessLookupError:  # it ended in this very moment
        return None
    except PermissionError as error:
        raise RunError(
            f"process {owner} works on run `{run.name}`, but belongs to another user",
            where=str(run.root),
            hint="ask its owner to stop it",
        ) from error
    return owner
