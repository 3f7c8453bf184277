"""What keeps a training going over its attempts, whatever happens to its ranks.

An attempt is one life of all ranks together. When a rank is lost the others cannot go on, so they
are ended too, and the next attempt resumes from the newest whole checkpoint, perhaps in another
layout. The position in the data is the step, so the curve goes on as if nothing had happened.
"""

from __future__ import annotations

import shutil
import signal
import time
from functools import partial

from cnai.cluster.kernel import KernelNews
from cnai.cluster.ranks import Order, RankEnded
from cnai.core.balance import Move
from cnai.core.course import course_of
from cnai.core.dataset import Dataset
from cnai.core.errors import ClusterError, CnaiError, Interrupted
from cnai.core.events import (
    AttemptStarted,
    CheckpointRejected,
    Event,
    LayoutChanged,
    RankFailed,
    Rebalanced,
    RunEnded,
    StepDone,
)
from cnai.core.files import write_atomically
from cnai.core.layout import ParallelPlan
from cnai.core.records import encode_pretty, to_dict
from cnai.core.runfolder import EventWriter, RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.flows.capacity import Capacity
from cnai.flows.data import place_of
from cnai.flows.doors import Doors
from cnai.flows.hanging import HangWatch
from cnai.flows.layouts import Change, Layouts
from cnai.flows.listener import Listener
from cnai.flows.reactions import Reactions
from cnai.flows.recovery import Recovery, last_step
from cnai.flows.shape import steps_of
from cnai.flows.stopping import StopWish
from cnai.flows.watcher import Watcher
from cnai.flows.worker_order import WorkerOrder
from cnai.monitor import DETECTORS, RunFollower, RunProgress, Tick, Watch
from cnai.monitor.detectors.stalled import Stalled
from cnai.train.manifest import newest_whole

_POLL_SECONDS = 0.25
_GRACE_SECONDS = 2.0


class Supervisor:
    """Keeps one run going over its attempts."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunFolder,
        plan: ParallelPlan,
        doors: Doors,
        agent: EventWriter,
        listener: Listener,
        wish: StopWish,
    ) -> None:
        self._spec = spec
        self._run = run
        self._doors = doors
        self._gang = doors.gang
        self._agent = agent
        self._listener = listener
        self._wish = wish
        self._steps = steps_of(spec)
        self._layouts = Layouts(
            spec, run, plan, Capacity(spec, doors.fleet, doors.clock.monotonic), listener
        )
        self._watcher = Watcher(run, self._gang)
        stall_seconds = spec.monitor.stall_seconds
        self._hangs = HangWatch(self._watcher, agent, listener, again_seconds=stall_seconds)
        self._kernel = KernelNews()
        self._reactions = Reactions(spec, run, doors.gang, agent, listener)
        self._recovery = Recovery(spec, run, self._layouts, agent, listener, self._kernel)
        self._start_seconds = time.monotonic()
        self._change: Change | None = None
        self._newest_step = 0
        self._follower = RunFollower(run)
        others = [kind for name, kind in DETECTORS.items() if name != Stalled.name]
        self._watch_for = Watch.of([*others, partial(Stalled, stall_seconds)])
        # What earlier commands lived through teaches the detectors, but was told by them.
        before = self._follower.read()
        for event in before:
            self._watch_for.update(event)
        self._attempt = sum(isinstance(e, AttemptStarted) for e in before)

    def supervise(self, manifest: Dataset) -> RunProgress:
        """Start attempts until one reaches the last step."""
        while (done := self._resume_step()) < self._steps:
            self._settle_layout(done)
            try:
                self._start(done, manifest)
            except ClusterError:
                # Ctrl-C in the moment between fork and exec ends the new process.
                if self._wish.times:
                    raise self._stopped() from None
                raise
            lost = self._watch()
            if self._wish.times:
                raise self._stopped()
            if lost:
                self._after_loss(lost, done)
            elif self._goes_on_as_it_is and self._resume_step() < self._steps:
                raise self._stopped()  # somebody asked a rank itself
            self._react()
            self._attempt += 1
        self._record_end("done", self._steps)
        self._observe()
        return self._follower.progress()

    @property
    def seconds(self) -> float:
        """Time since this command began to train."""
        return time.monotonic() - self._start_seconds

    @property
    def _goes_on_as_it_is(self) -> bool:
        """Tell whether nobody has asked the ranks to make room for something else."""
        return self._change is None and self._reactions.due is None

    def _react(self) -> None:
        """Do what a finding asks for, now that the ranks have ended and steps are left."""
        if self._resume_step() >= self._steps:
            return
        try:
            self._reactions.settle()
        except CnaiError as error:
            self._record_end("stopped", last_step(read_events(self._run)) or 0, error.message)
            raise

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

    def _settle_layout(self, done: int) -> None:
        """Take the layout that there is room for before the ranks are started."""
        self._change = None
        before = self._layouts.plan
        change = self._layouts.change()
        if change is not None:
            self._layouts.take(change)
            self._agent.write(
                LayoutChanged(
                    time_unix=time.time(),
                    before=str(before.layout),
                    after=str(change.plan.layout),
                    plan_digest=change.plan.digest,
                    step=done,
                    reason=change.reason,
                )
            )
            if change.move is not None:
                self._record_move(change.move, done)
            else:
                self._listener.note(f"{before.layout} -> {change.plan.layout}: {change.reason}")
        self._layouts.check()

    def _record_move(self, move: Move, done: int) -> None:
        """Record that layers move between the stages."""
        self._agent.write(
            Rebalanced(
                time_unix=time.time(),
                attempt=self._attempt,
                step=done,
                moved="layers",
                before=move.before,
                after=move.after,
                gain=move.gain,
                reason=move.reason,
                is_rollback=move.is_rollback,
            )
        )

    def _start(self, done: int, manifest: Dataset) -> None:
        plan = self._layouts.plan
        layout = plan.layout
        for file in (self._run.plan_file, self._run.attempt_plan(self._attempt)):
            write_atomically(file, encode_pretty(plan))
        self._agent.write(
            AttemptStarted(
                time_unix=time.time(),
                attempt=self._attempt,
                ranks=layout.ranks,
                steps=self._steps,
                plan_digest=plan.digest,
                layout=str(layout),
                resumed_step=done,
            )
        )
        if done:
            self._listener.note(f"resuming from the checkpoint of step {done}")
        self._listener.note(f"starting {layout.ranks} rank{'s' if layout.ranks > 1 else ''}")
        self._hangs.reset()
        shutil.rmtree(self._run.standing, ignore_errors=True)
        order = WorkerOrder(
            run=str(self._run.root.absolute()),
            resume_step=done,
            dataset=place_of(self._spec, self._run, manifest),
            course=course_of(read_events(self._run)),
        )
        self._gang.start(
            Order(
                target=self._doors.worker,
                ranks=layout.ranks,
                payload=to_dict(order),
                logs=self._run.logs,
                environment=self._doors.environment(layout.ranks),
                attempt=self._attempt,
            )
        )

    def _watch(self) -> list[RankEnded]:
        """Follow an attempt to its end; return the ranks that did not end well."""
        bad: list[RankEnded] = []
        early: list[RankEnded] = []
        asked = 0
        deadline: float | None = None
        while self._gang.living:
            for end in self._gang.poll(_POLL_SECONDS):
                (bad if end.code else early).append(end)
            self._observe()
            if self._gang.noticed:
                self._wish.notice()
            if bad:
                left = [] if asked else [end for end in early if self._left_early(end.rank)]
                return left + bad + self._end_victims()
            if not asked and (hang := self._look_for_hang(early)):
                return hang
            wishes = self._wish.times or int(self._wants_change())
            if wishes > asked:
                asked = wishes
                self._ask_to_stop(asked)
                deadline = deadline or time.monotonic() + self._spec.checkpoint.grace_seconds
            if deadline is not None and time.monotonic() > deadline:
                self._give_up_waiting()
                deadline = None
        self._observe()
        return bad

    def _left_early(self, rank: int) -> bool:
        """Tell whether a rank that ended well had steps left to do."""
        page = self._watcher.moves(rank + 1)[rank]
        return page is not None and page.step < self._steps

    def _look_for_hang(self, early: list[RankEnded]) -> list[RankEnded]:
        """Look for ranks that hang, when that is due; end all, and return the one to blame."""
        ended = {end.rank for end in early}
        hang = self._hangs.look(self._attempt, self._layouts.plan.layout.ranks, ended)
        if hang is None:
            return []
        self._gang.kill()
        if hang.rank is None or hang.rank in ended:
            return early or [RankEnded(rank=0, code=-signal.SIGKILL)]
        return [RankEnded(rank=hang.rank, code=-signal.SIGKILL)]

    def _wants_change(self) -> bool:
        """Tell whether the ranks are to be ended for another layout, or for a reaction."""
        if self._reactions.due is not None:
            return True
        if self._change is None:
            self._change = self._layouts.change()
            if self._change is not None:
                after = self._change.plan.layout
                what = "another cut of the pipeline" if self._change.move else after
                self._listener.note(f"changing over to {what}: {self._change.reason}")
        return self._change is not None

    def _observe(self) -> None:
        """Show what is new to the detectors and the user, and keep what the detectors found."""
        for event in (*self._follower.read(), Tick(time_unix=time.time())):
            self._layouts.hear(event)
            self._tell(event)
            if isinstance(event, StepDone):
                self._hangs.hear_step(event)
                self._newest_step = event.step
            for finding in self._watch_for.update(event):
                self._agent.write(finding)
                if finding.detector == Stalled.name:
                    self._hangs.hear_stall(finding)
                self._listener.warn(f"{finding.detector}: {finding.message}")
                self._reactions.hear(finding, self._newest_step)
        self._listener.training(self._follower.progress())

    def _tell(self, event: Event) -> None:
        """Tell the user of work that was moved, with the reason."""
        if isinstance(event, Rebalanced):
            before, after = (", ".join(map(str, one[:16])) for one in (event.before, event.after))
            verb = "moved back" if event.is_rollback else "moved"
            self._listener.note(f"{event.moved} {verb}, {before} -> {after}: {event.reason}")

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
            if self._wish.times:
                self._listener.note("stopping after this step, with a checkpoint; again = at once")
            self._gang.ask_to_stop()
        else:
            self._gang.kill()

    def _give_up_waiting(self) -> None:
        self._listener.warn(
            f"the ranks did not stop within {self._spec.checkpoint.grace_seconds:g} s "
            "(`checkpoint.grace_seconds`); ending them without a checkpoint"
        )
        self._gang.kill()

    def _after_loss(self, lost: list[RankEnded], resumed_step: int) -> None:
        """Do about a loss what helps; raise when starting again would not."""
        stood = self._watcher.read(self._attempt, self._layouts.plan.layout.ranks)
        self._observe()
        if self._reactions.due is not None:
            return  # which mends it
        if self._change is not None and not self._has_failed():
            return  # the ranks were ended on purpose
        try:
            self._recovery.after(self._attempt, lost, stood, resumed_step)
        except CnaiError as error:
            self._record_end("failed", last_step(read_events(self._run)) or 0, error.message)
            raise

    def _has_failed(self) -> bool:
        return any(
            isinstance(e, RankFailed) and e.attempt == self._attempt for e in read_events(self._run)
        )

    def _stopped(self) -> Interrupted:
        step = (self._run.checkpoint_steps() or [0])[-1]
        self._record_end("stopped", step)
        return Interrupted(
            f"stopped; the checkpoint of step {step} is kept"
            if step
            else "stopped before the first checkpoint",
            where=str(self._run.root),
            hint="run the same command again to go on",
        )

    def _record_end(self, outcome: str, step: int, reason: str = "") -> None:
        self._agent.write(
            RunEnded(
                time_unix=time.time(),
                outcome=outcome,
                step=step,
                seconds=self.seconds,
                reason=reason,
            )
        )
