"""Follow a run while it happens, or one that is over."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import attrgetter

from cnai.core.clock import Clock, SystemClock
from cnai.core.events import Event
from cnai.core.runfolder import EventFollower, RunFolder
from cnai.core.vectors import VectorFollower
from cnai.monitor.fold import ProgressFold
from cnai.monitor.progress import RunProgress


class RunFollower:
    """Reads what is new and gives the progress; any number of them may follow one run."""

    def __init__(self, run: RunFolder, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._events = EventFollower(run)
        self._layers = VectorFollower(run.layers_file)
        self._fold = ProgressFold(run.name)

    def read(self) -> list[Event]:
        """Take the events that came since the last call into the progress, and return them.

        Among them, in their places, are the records of the layers, which no event file holds.
        """
        events = self._events.read()
        for event in events:
            self._fold.add(event)
        layers: list[Event] = list(self._layers.read())
        return list(heapq.merge(events, layers, key=attrgetter("time_unix"))) if layers else events

    def progress(self) -> RunProgress:
        """Read what is new and return where the run stands."""
        self.read()
        return self._fold.progress(self._clock.now())


def follow(
    run: RunFolder, *, clock: Clock | None = None, every_seconds: float = 1.0
) -> Iterator[RunProgress]:
    """Yield the progress now and then until the run is done, has failed or was stopped.

    A run that was over before yields once. Events that come in the same moment as the end are in
    the last progress. A run whose supervisor was killed never ends; the caller stops to ask.
    """
    clock = clock or SystemClock()
    follower = RunFollower(run, clock)
    while True:
        progress = follower.progress()
        yield progress
        if progress.state.is_final:
            return
        clock.sleep(every_seconds)
