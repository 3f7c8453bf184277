"""`ai-cli train`: start the ranks, watch them, start them again after a loss, until all is done.

An attempt is one life of all ranks together. When a rank is lost the others cannot go on, so they
are ended too, and the next attempt resumes from the newest whole checkpoint. The position in the
data is the step, so the curve goes on as if nothing had happened.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cnai.cluster import LocalGang
from cnai.cluster.ranks import Order, RankEnded
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import ClusterError, Interrupted, RunError, error_of
from cnai.core.events import (
    AttemptStarted,
    CheckpointRejected,
    Event,
    RankFailed,
    RankLost,
    RunEnded,
    StepDone,
)
from cnai.core.files import write_atomically
from cnai.core.fleet import Phase
from cnai.core.layout import ParallelPlan
from cnai.core.records import encode_pretty, to_dict
from cnai.core.runfolder import EventWriter, RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.diagnose import diagnose_run
from cnai.flows.data import place_of
from cnai.flows.here import check_is_here
from cnai.flows.listener import Listener
from cnai.flows.logs import tail
from cnai.flows.machines import fleet_of
from cnai.flows.shape import steps_of
from cnai.flows.stopping import StopWish, stop_wishes
from cnai.flows.worker_order import WorkerOrder
from cnai.monitor import DETECTORS, RunFollower, Tick, Watch, serve_metrics
from cnai.schedule import allocate
from cnai.train.manifest import newest_whole

_POLL_SECONDS = 0.25
_GRACE_SECONDS = 2.0
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """How a training went.

    Attributes:
        loss: Training loss of the last step, nats per token.
        seconds: From the first attempt of this command to its end.
        tokens_per_second: Median over the last steps.
        restarts: Attempts after the first, over the life of the run.
    """

    steps: int
    loss: float
    first_loss: float
    seconds: float
    tokens_per_second: float
    restarts: int
    checkpoint: str


def train_run(
    spec: RunSpec,
    run: RunFolder,
    plan: ParallelPlan,
    manifest: DatasetManifest,
    listener: Listener,
) -> TrainResult:
    """Train a run to its last step, or go on with it.

    Raises:
        SpecError: The spec wants machines that this version cannot start.
        RunError: Ranks were lost more often than `train.max_restarts` allows.
        DataError: Every checkpoint is damaged.
        Interrupted: The user stopped it; a checkpoint was saved.
    """
    check_is_here(spec)
    write_atomically(run.plan_file, encode_pretty(plan))
    allocation = allocate(
        run.name, Phase.TRAIN, plan.layout.ranks, fleet_of(spec), group=plan.layout.model
    )
    listener.note(allocation.reason)
    gang = LocalGang(server="cnai.train.forkserver", preload=["cnai.flows.worker"])
    with run.writer("agent") as agent, _metrics(spec, run, listener), gang, stop_wishes() as wish:
        return Supervisor(spec, run, plan, gang, agent, listener, wish).supervise(manifest)


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


class Supervisor:
    """Keeps one run going over its attempts."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunFolder,
        plan: ParallelPlan,
        gang: LocalGang,
        agent: EventWriter,
        listener: Listener,
        wish: StopWish,
    ) -> None:
        self._spec = spec
        self._run = run
        self._plan = plan
        self._gang = gang
        self._agent = agent
        self._listener = listener
        self._wish = wish
        self._steps = steps_of(spec)
        self._follower = RunFollower(run)
        self._watch_for = Watch.of(list(DETECTORS.values()))
        # What earlier commands lived through teaches the detectors, but was told by them.
        before = self._follower.read()
        for event in before:
            self._watch_for.update(event)
        self._earlier = sum(isinstance(e, AttemptStarted) for e in before)

    def supervise(self, manifest: DatasetManifest) -> TrainResult:
        """Start attempts until one reaches the last step."""
        start = time.monotonic()
        restarts = 0
        while (done := self._resume_step()) < self._steps:
            attempt = self._earlier + restarts
            try:
                self._start(attempt, done, manifest)
            except ClusterError:
                # Ctrl-C in the moment between fork and exec ends the new process.
                if self._wish.times:
                    raise self._stopped(start) from None
                raise
            lost = self._watch()
            if self._wish.times:
                raise self._stopped(start)
            if lost:
                self._after_loss(attempt, lost, restarts, start)
                restarts += 1
        seconds = time.monotonic() - start
        self._record_end("done", self._steps, seconds)
        return self._result(seconds)

    def _resume_step(self) -> int:
        step, rejected = newest_whole(self._run)
        for error in rejected:
            self._listener.warn(f"{error.message}; going on from step {step}")
            self._agent.write(
                CheckpointRejected(
                    time_unix=time.time(), path=error.where or "", reason=error.message
                )
            )
        return step

    def _start(self, attempt: int, done: int, manifest: DatasetManifest) -> None:
        layout = self._plan.layout
        self._agent.write(
            AttemptStarted(
                time_unix=time.time(),
                attempt=attempt,
                ranks=layout.ranks,
                steps=self._steps,
                plan_digest=self._plan.digest,
                layout=str(layout),
                resumed_step=done,
            )
        )
        if done:
            self._listener.note(f"resuming from the checkpoint of step {done}")
        order = WorkerOrder(
            run=str(self._run.root.absolute()),
            resume_step=done,
            dataset=place_of(self._spec, self._run, manifest),
        )
        self._gang.start(
            Order(
                target="cnai.flows.worker:train_rank",
                ranks=layout.ranks,
                payload=to_dict(order),
                logs=self._run.logs,
                environment=rank_environment(layout.ranks),
                attempt=attempt,
            )
        )

    def _watch(self) -> list[RankEnded]:
        """Follow an attempt to its end; return the ranks that did not end well."""
        bad: list[RankEnded] = []
        asked = 0
        while self._gang.living:
            bad += [end for end in self._gang.poll(_POLL_SECONDS) if end.code != 0]
            self._observe()
            if bad:
                return bad + self._end_victims()
            if self._wish.times > asked:
                asked = self._wish.times
                self._ask_to_stop(asked)
        self._observe()
        return bad

    def _observe(self) -> None:
        """Show what is new to the detectors and the user, and keep what the detectors found."""
        for event in (*self._follower.read(), Tick(time_unix=time.time())):
            for finding in self._watch_for.update(event):
                self._agent.write(finding)
                self._listener.warn(f"{finding.detector}: {finding.message}")
        self._listener.training(self._follower.progress())

    def _end_victims(self) -> list[RankEnded]:
        """Give the other ranks a moment to say what they saw, then end them."""
        bad: list[RankEnded] = []
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._gang.living and time.monotonic() < deadline:
            bad += [end for end in self._gang.poll(_POLL_SECONDS) if end.code != 0]
        self._gang.kill()
        return bad

    def _ask_to_stop(self, times: int) -> None:
        if times == 1:
            self._listener.note("stopping after this step, with a checkpoint; again = at once")
            self._gang.ask_to_stop()
        else:
            self._gang.kill()

    def _after_loss(self, attempt: int, lost: list[RankEnded], restarts: int, start: float) -> None:
        """Record the losses; raise when starting again would not help."""
        events = read_events(self._run)
        self._raise_if_failed(events, attempt, start)
        for end in lost:
            self._agent.write(
                RankLost(
                    time_unix=time.time(),
                    rank=end.rank,
                    attempt=attempt,
                    exit_code=end.code,
                    step=_last_step(events, end.rank),
                    log_tail=_log_tail(self._run, end.rank),
                )
            )
        diagnosis = diagnose_run(self._run)
        summary = diagnosis.summary
        if restarts >= self._spec.train.max_restarts:
            self._record_end("failed", _last_step(events) or 0, time.monotonic() - start, summary)
            raise RunError(
                f"training failed: {summary}",
                where=str(self._run.root),
                hint=f"see `ai-cli diagnose {self._run.root}`; the checkpoints are kept, and the "
                "same command goes on from the newest",
            )
        self._listener.warn(f"{summary}; starting the ranks again")

    def _raise_if_failed(self, events: list[Event], attempt: int, start: float) -> None:
        failures = [e for e in events if isinstance(e, RankFailed) and e.attempt == attempt]
        if failures:
            first = failures[0]
            self._record_end(
                "failed", _last_step(events) or 0, time.monotonic() - start, first.message
            )
            raise error_of(first.code, first.message, hint=first.hint, where=first.where)

    def _stopped(self, start: float) -> Interrupted:
        step = (self._run.checkpoint_steps() or [0])[-1]
        self._record_end("stopped", step, time.monotonic() - start)
        return Interrupted(
            f"stopped; the checkpoint of step {step} is kept"
            if step
            else "stopped before the first checkpoint",
            where=str(self._run.root),
            hint="run the same command again to go on",
        )

    def _record_end(self, outcome: str, step: int, seconds: float, reason: str = "") -> None:
        self._agent.write(
            RunEnded(
                time_unix=time.time(), outcome=outcome, step=step, seconds=seconds, reason=reason
            )
        )

    def _result(self, seconds: float) -> TrainResult:
        progress = self._follower.progress()
        return TrainResult(
            steps=self._steps,
            loss=progress.loss if progress.loss is not None else float("nan"),
            first_loss=progress.first_loss if progress.first_loss is not None else float("nan"),
            seconds=seconds,
            tokens_per_second=progress.tokens_per_second or 0.0,
            restarts=progress.attempt or 0,
            checkpoint=str(self._run.checkpoint(self._steps)),
        )


def rank_environment(ranks: int) -> dict[str, str]:
    """Return the variables that ranks of this machine need.

    OMP threads that spin while they wait make a busy machine many times slower, and more threads
    than cores do the same.
    """
    threads = max(1, (os.cpu_count() or 1) // ranks)
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GLOO_SOCKET_IFNAME": "lo",
        "TOKENIZERS_PARALLELISM": "false",
    }


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


def _last_step(events: list[Event], rank: int | None = None) -> int | None:
    steps = [e.step for e in events if isinstance(e, StepDone) and rank in {None, e.rank}]
    return steps[-1] if steps else None


def _log_tail(run: RunFolder, rank: int) -> str:
    log = run.rank_log(rank)
    return "\n".join(tail(log, _TAIL_LINES)) if log.is_file() else ""
