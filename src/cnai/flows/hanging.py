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
_PATIENCE = 5
_SECOND_LOOK_SECONDS = 2.0


class HangWatch:
    """Decides when a silent run hangs.

    The detector `stalled` says that no step was done for long. Then the ranks are looked at twice;
    where a page moves, something goes on (a long evaluation, a slow store), and it is looked again
    later. A rank that computes may do so for a reason, so it is given more time than one that
    sleeps, waits for a disk or was stopped.

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
        self._busy_looks = 0

    def reset(self) -> None:
        """Begin anew with an attempt."""
        self._due = None
        self._busy_looks = 0

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
        self._busy_looks += 1
        busy = (hang.busy or 0.0) >= _BUSY
        waits = busy and self._busy_looks < _PATIENCE
        if self._busy_looks == 1 or not waits:
            self._keep(second, hang, waits=waits)
        return None if waits else hang

    def _keep(self, stood: tuple[RankStood, ...], hang: Hang, *, waits: bool) -> None:
        for one in stood:
            self._agent.write(one)
        finding = Finding(
            time_unix=time.time(),
            detector="hung",
            severity="warning" if waits else "critical",
            message=hang.summary + ("; it computes, so it is given more time" if waits else ""),
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


def _goes_on(first: tuple[RankStood, ...], second: tuple[RankStood, ...]) -> bool:
    """Tell whether collectives were begun between two looks."""
    return any(
        a.enqueued and b.enqueued and a.enqueued != b.enqueued
        for a, b in zip(first, second, strict=True)
    )
