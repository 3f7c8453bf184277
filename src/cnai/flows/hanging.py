"""A run in which nothing goes on any more: look twice, name the rank, end what hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from cnai.core.events import Finding, RankStood, Repair, StepDone
from cnai.core.runfolder import EventWriter
from cnai.diagnose.standing import Hang, locate
from cnai.flows.listener import Listener
from cnai.flows.watcher import Watcher

_BUSY = 0.5
_LONG_PHASES = frozenset({"start", "load", "save", "evaluate"})
_PATIENCE = 5
_SECOND_LOOK_SECONDS = 2.0


class HangWatch:
    """Decides when a silent run hangs.

    The detector `stalled` says that no step was done for long. Then the ranks are looked at twice;
    where a page moves, something goes on (a long evaluation, a slow store), and it is looked again
    later. A rank that computes, saves, loads or evaluates may do so for long, and a store of data
    that no rank gets an answer of may be slow, so these are given more time than one rank that
    sleeps or was stopped in the midst of a step.

    Args:
        watcher: Looks at the ranks.
        agent: Takes the events.
        listener: Hears of it.
        again_seconds: Time until it is looked again.
    """

    def __init__(
        self,
        watcher: Watcher,
        agent: EventWriter,
        listener: Listener,
        *,
        again_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watcher = watcher
        self._agent = agent
        self._listener = listener
        self._again_seconds = again_seconds
        self._clock = clock
        self._due: float | None = None
        self._looks_alike = 0

    def reset(self) -> None:
        """Begin anew with an attempt."""
        self._due = None
        self._looks_alike = 0

    def hear_step(self, _: StepDone) -> None:
        """Hear that something goes on."""
        self.reset()

    def hear_stall(self, _: Finding) -> None:
        """Hear that no step was done for long."""
        if self._due is None:
            self._due = self._clock()

    def look(self, attempt: int, ranks: int, ended: Collection[int] = ()) -> Hang | None:
        """Look when it is due; return the hang when the ranks are to be ended for it.

        Args:
            attempt: The attempt.
            ranks: How many there are.
            ended: Ranks whose end is known; while others are gone too, nothing is said of a hang.
        """
        if self._due is None or self._clock() < self._due:
            return None
        self._due = self._clock() + self._again_seconds
        before = self._watcher.moves(ranks)
        first = self._watcher.ask(attempt, ranks)
        time.sleep(min(_SECOND_LOOK_SECONDS, self._again_seconds / 4))
        second = self._watcher.ask(attempt, ranks)
        if before != self._watcher.moves(ranks) or _goes_on(first, second):
            self._listener.note("no step for long, but the ranks go on; looking again later")
            return None
        gone = {one.rank for one in second if one.process == "gone"}
        hang = None if gone - set(ended) else locate(second)
        if hang is None:
            return None
        self._looks_alike += 1
        waits = _may_go_on(hang) and self._looks_alike < _PATIENCE
        if self._looks_alike == 1 or not waits:
            self._keep(second, hang, waits=waits)
        return None if waits else hang

    def _keep(self, stood: tuple[RankStood, ...], hang: Hang, *, waits: bool) -> None:
        for one in stood:
            self._agent.write(one)
        finding = Finding(
            time_unix=time.time(),
            detector="hung",
            severity="warning" if waits else "critical",
            message=hang.summary
            + ("; it may be long work, so it is given more time" if waits else ""),
            step=hang.step,
            rank=hang.rank,
            evidence=hang.evidence,
            repairs=(
                Repair(title=f"look at {hang.frame}" if hang.frame else "look at that rank"),
                Repair(title="start the ranks again from the newest checkpoint", safe=True),
            ),
        )
        self._agent.write(finding)
        self._listener.warn(f"hung: {finding.message}")


def _may_go_on(hang: Hang) -> bool:
    """Tell whether what looks like a hang may be long work."""
    if hang.rank is None or hang.phase in _LONG_PHASES:
        return True
    return (hang.busy or 0.0) >= _BUSY


def _goes_on(first: tuple[RankStood, ...], second: tuple[RankStood, ...]) -> bool:
    """Tell whether collectives were begun between two looks."""
    return any(
        a.enqueued and b.enqueued and a.enqueued != b.enqueued
        for a, b in zip(first, second, strict=True)
    )
