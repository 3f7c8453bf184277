"""What is done about lost ranks: record, diagnose, decide, and carry the decision out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from cnai.cluster.kernel import KernelNews
from cnai.cluster.ranks import RankEnded
from cnai.core.errors import RunError, error_of
from cnai.core.events import (
    CheckpointRejected,
    Decided,
    Event,
    RankFailed,
    RankLost,
    RankStood,
    StepDone,
)
from cnai.core.runfolder import ATTEMPT_MARK, EventWriter, RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.diagnose import Diagnosis, diagnose_run
from cnai.diagnose.policy import Action, Circumstances, Decision, decide
from cnai.flows.layouts import Layouts
from cnai.flows.lighter import Patch, lighter
from cnai.flows.listener import Listener
from cnai.flows.logs import tail

_TAIL_LINES = 20
_Strike = tuple[str | None, int | None, int]
"""Fault, rank and newest checkpoint: the same again means that nothing was gained."""


class Recovery:
    """Decides after each loss whether and how a run goes on.

    Args:
        layouts: Knows the plan in use and the room for others.
        kernel: Tells what the kernel of this machine said meanwhile.
    """

    def __init__(
        self,
        spec: RunSpec,
        run: RunFolder,
        layouts: Layouts,
        agent: EventWriter,
        listener: Listener,
        kernel: KernelNews | None = None,
    ) -> None:
        self._spec = spec
        self._run = run
        self._layouts = layouts
        self._agent = agent
        self._listener = listener
        self._kernel = kernel
        self._restarts = 0
        self._struck: Counter[_Strike] = Counter()

    def after(
        self,
        attempt: int,
        lost: Sequence[RankEnded],
        stood: Sequence[RankStood],
        resumed_step: int,
    ) -> None:
        """Record a loss and do about it what helps; then the run may be started again.

        Args:
            attempt: The attempt that ended.
            lost: Ranks that ended before their work was done.
            stood: Where the ranks of the attempt stood.
            resumed_step: Step of the checkpoint from which the attempt went on.

        Raises:
            CnaiError: Starting again would not help; it is the error that a rank reported, or a
                RunError with the reason and advice.
        """
        self._record(attempt, lost, stood)
        events = read_events(self._run)
        failed = next(
            (e for e in events if isinstance(e, RankFailed) and e.attempt == attempt), None
        )
        found = diagnose_run(self._run)
        strike = (found.fault, found.root_rank, (self._run.checkpoint_steps() or [0])[-1])
        root = lost[0].rank if found.root_rank is None and lost else found.root_rank
        decision = self._decided(found, strike, root, resumed_step, reported=failed is not None)
        self._struck[strike] += 1
        patch = lighter(self._layouts.spec, self._layouts.plan) if decision.lighter else None
        node = self._carry_out(decision, root, resumed_step)
        rejects = decision.action is Action.PREVIOUS_CHECKPOINT
        self._agent.write(
            Decided(
                time_unix=time.time(),
                attempt=attempt,
                fault=found.fault,
                action=decision.action,
                reason=decision.reason,
                rank=root,
                node=node,
                rejected_step=resumed_step if rejects else None,
                spec_patch=patch,
            )
        )
        if decision.action is Action.STOP:
            raise self._error(found, decision, failed, patch)
        self._restarts += 1
        if root is not None:
            self._layouts.lost(root)
        self._listener.warn(f"{found.summary}; starting the ranks again: {decision.reason}")

    def _decided(
        self,
        found: Diagnosis,
        strike: _Strike,
        root: int | None,
        resumed_step: int,
        *,
        reported: bool,
    ) -> Decision:
        return decide(
            found,
            Circumstances(
                restarts=self._restarts,
                most_restarts=self._spec.train.max_restarts,
                same=self._struck[strike],
                resumed_step=resumed_step,
                may_exclude=self._layouts.may_exclude(root),
                reported=reported,
            ),
        )

    def _record(self, attempt: int, lost: Sequence[RankEnded], stood: Sequence[RankStood]) -> None:
        for one in stood:
            self._agent.write(one)
        self._keep_kernel_news(attempt)
        events = read_events(self._run)
        failed = {e.rank for e in events if isinstance(e, RankFailed) and e.attempt == attempt}
        for end in lost:
            if end.rank not in failed:
                self._agent.write(
                    RankLost(
                        time_unix=time.time(),
                        rank=end.rank,
                        attempt=attempt,
                        exit_code=end.code,
                        step=last_step(events, end.rank),
                        log_tail=_log_tail(self._run, end.rank),
                    )
                )

    def _keep_kernel_news(self, attempt: int) -> None:
        """Write what the kernel said to a log of its own, where the diagnosis reads it."""
        lines = self._kernel.read() if self._kernel else []
        if lines:
            with (self._run.logs / "kernel.log").open("a") as log:
                log.write("\n".join((f"{ATTEMPT_MARK}{attempt}", *lines, "")))

    def _carry_out(self, decision: Decision, root: int | None, resumed_step: int) -> str | None:
        """Do what has to be done before the ranks are started again; return a machine given up."""
        if decision.action is Action.EXCLUDE_NODE and root is not None:
            return self._layouts.exclude(root)
        if decision.action is Action.PREVIOUS_CHECKPOINT:
            folder = self._run.checkpoint(resumed_step)
            aside = folder.with_name(f".rejected-{folder.name}-{int(time.time())}")
            folder.rename(aside)
            self._agent.write(
                CheckpointRejected(time_unix=time.time(), path=str(aside), reason=decision.reason)
            )
        return None

    def _error(
        self,
        found: Diagnosis,
        decision: Decision,
        failed: RankFailed | None,
        patch: Patch | None,
    ) -> Exception:
        if failed is not None:
            return error_of(failed.code, failed.message, hint=failed.hint, where=failed.where)
        advice = next((repair.title for repair in found.repairs), "")
        if patch:
            sets = " ".join(f"--set {key}={value}" for key, value in patch.items())
            advice = f"the planner's next layout needs less memory: {sets}"
        return RunError(
            f"training failed: {found.summary}; {decision.reason}",
            where=str(self._run.root),
            hint=f"{advice}; see `ai-cli diagnose {self._run.root}`; the checkpoints are kept, "
            "and the same command goes on from the newest".removeprefix("; "),
        )


def last_step(events: Sequence[Event], rank: int | None = None) -> int | None:
    """Return the last step that a rank, or any, reported."""
    steps = [e.step for e in events if isinstance(e, StepDone) and rank in {None, e.rank}]
    return steps[-1] if steps else None


def _log_tail(run: RunFolder, rank: int) -> str:
    log = run.rank_log(rank)
    return "\n".join(tail(log, _TAIL_LINES)) if log.is_file() else ""
