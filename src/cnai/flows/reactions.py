"""What a run does by itself about findings, as `monitor.reactions` asks, and taking it back.

A checkpoint is saved by the living ranks. Everything else ends them first, as a change of layout
does, and holds from the next attempt on: the events tell it (`core/course.py`), so nothing is lost
with a process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from difflib import get_close_matches

from cnai.cluster import LocalGang
from cnai.core.course import standing
from cnai.core.errors import RunError, SpecError
from cnai.core.events import Finding, Reacted
from cnai.core.runfolder import EventWriter, RunFolder, read_events
from cnai.core.spec import RunSpec
from cnai.core.spec.reactions_section import Reactions as Asked
from cnai.flows.listener import Listener
from cnai.monitor import DETECTORS
from cnai.train.wishes import SAVE_SIGNAL

_ACTIONS = ("stop", "roll_back", "lower_rate", "checkpoint")
"""The first that names the detector counts."""


@dataclass(frozen=True, slots=True)
class _Due:
    action: str
    finding: Finding
    step: int


class Reactions:
    """Hears findings and does about them what was asked for.

    Attributes:
        due: What will be done as soon as the ranks have ended; None = they may go on.

    Raises:
        SpecError: A name is no detector.
    """

    def __init__(
        self,
        spec: RunSpec,
        run: RunFolder,
        gang: LocalGang,
        agent: EventWriter,
        listener: Listener,
    ) -> None:
        self._asked = spec.monitor.reactions
        self._run = run
        self._gang = gang
        self._agent = agent
        self._listener = listener
        self.due: _Due | None = None
        _check_names(self._asked)
        self._number = sum(isinstance(e, Reacted) for e in read_events(run))

    def hear(self, finding: Finding, step: int) -> None:
        """Hear of a finding.

        Args:
            step: Steps done.
        """
        action = self._action(finding)
        if action is None or self.due is not None:
            return
        if self._number >= self._asked.at_most:
            self._listener.warn(
                f"{finding.detector}: nothing is done by itself any more "
                f"(`monitor.reactions.at_most` is {self._asked.at_most})"
            )
            return
        due = _Due(action, finding, step if finding.step is None else max(step, finding.step))
        if action != "checkpoint":
            self.due = due
            return
        self._gang.signal(SAVE_SIGNAL)
        self._record(due, from_step=due.step, what="a checkpoint is saved")

    def settle(self) -> None:
        """Do what is due, after the ranks have ended.

        Raises:
            RunError: The run is to stop.
        """
        due, self.due = self.due, None
        if due is None:
            return
        newest = (self._run.checkpoint_steps() or [0])[-1]
        if due.action == "stop":
            self._record(due, from_step=newest, what="the run stops")
            raise RunError(
                f"stopped as `monitor.reactions.stop` asks: {due.finding.message}",
                where=str(self._run.root),
                hint=f"the checkpoint of step {newest} is kept; the same command goes on from it",
            )
        if due.action == "lower_rate":
            factor = self._asked.rate_factor
            what = f"the learning rate is multiplied with {factor:g}"
            self._record(due, from_step=newest, rate_factor=factor, what=what)
            return
        target = self._trusted(due.step)
        passed = due.step - target
        set_aside(self._run, target, f".rolled-back-{self._number + 1}-")
        what = f"back to step {target}, and the data of {passed} steps is passed over"
        self._record(due, from_step=target, data_steps=passed, what=what)

    def _action(self, finding: Finding) -> str | None:
        if finding.cause is not None:
            return None
        return next(
            (one for one in _ACTIONS if finding.detector in getattr(self._asked, one)), None
        )

    def _trusted(self, step: int) -> int:
        """Return the newest checkpoint that lies far enough before a step, 0 = the beginning."""
        latest = step - self._asked.roll_back_steps
        return max((one for one in self._run.checkpoint_steps() if one <= latest), default=0)

    def _record(
        self,
        due: _Due,
        *,
        from_step: int,
        what: str,
        rate_factor: float = 1.0,
        data_steps: int = 0,
    ) -> None:
        self._number += 1
        reason = f"{due.finding.detector}: {due.finding.message}"
        self._agent.write(
            Reacted(
                time_unix=time.time(),
                number=self._number,
                action=due.action,
                detector=due.finding.detector,
                step=due.step,
                from_step=from_step,
                reason=reason,
                rate_factor=rate_factor,
                data_steps=data_steps,
            )
        )
        self._listener.warn(f"reaction {self._number}, {what}; {reason}")


def set_aside(run: RunFolder, after: int, prefix: str) -> None:
    """Rename the checkpoints of later steps, so that none of them is taken for a checkpoint."""
    for step in run.checkpoint_steps():
        if step > after:
            folder = run.checkpoint(step)
            folder.rename(folder.with_name(prefix + folder.name))


def undo(run: RunFolder, number: int | None = None) -> Reacted:
    """Take a reaction back, the newest by default; the next start goes on without it.

    A rolled-back run gets its checkpoints of then back, and those made since are put aside.

    Raises:
        RunError: The run is alive, or there is no such reaction.
    """
    with run.locked():
        events = read_events(run)
        held = {e.number: e for e in standing(events) if e.action in {"lower_rate", "roll_back"}}
        found = held.get(max(held, default=0) if number is None else number)
        if found is None:
            known = ", ".join(map(str, held)) or "none"
            raise RunError(
                "no reaction to take back" if number is None else f"no reaction {number}",
                where=str(run.root),
                hint=f"reactions that can be taken back: {known}",
            )
        mark = sum(isinstance(e, Reacted) for e in events) + 1
        if found.action == "roll_back":
            _restore(run, found, mark)
        taken = Reacted(
            time_unix=time.time(),
            number=mark,
            action="undo",
            detector=found.detector,
            step=(run.checkpoint_steps() or [0])[-1],
            from_step=found.from_step,
            reason=f"reaction {found.number} was taken back by hand",
            undoes=found.number,
        )
        with run.writer("user") as writer:
            writer.write(taken)
    return taken


def _restore(run: RunFolder, reaction: Reacted, mark: int) -> None:
    set_aside(run, reaction.from_step, f".undone-{mark}-")
    prefix = f".rolled-back-{reaction.number}-"
    for folder in sorted(run.checkpoints.glob(f"{prefix}*")):
        folder.rename(folder.with_name(folder.name.removeprefix(prefix)))


def _check_names(asked: Asked) -> None:
    for action in _ACTIONS:
        for name in getattr(asked, action):
            if name not in DETECTORS:
                near = get_close_matches(name, DETECTORS, n=1)
                raise SpecError(
                    f"`{name}` is no detector",
                    where=f"monitor.reactions.{action}",
                    hint=f"did you mean `{near[0]}`?" if near else ", ".join(sorted(DETECTORS)),
                )
