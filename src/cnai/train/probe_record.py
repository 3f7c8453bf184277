"""The vector of a step while it comes together: gradients now, the update with the next message."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cnai.core.errors import CnaiError
from cnai.core.events import Event, Finding
from cnai.core.runfolder import RunFolder
from cnai.core.vectors import LayersMeasured, VectorWriter
from cnai.train.probe_columns import Places

Sink = Callable[[Event], None]

_LATE = frozenset({"update", "weight"})
"""Groups that are known only after the update, so that they come with the message of the next step
and belong to the step before it."""


class Record:
    """Puts the records of steps together out of the messages, and hands each on when it is whole.

    Args:
        sink: Takes the records; None = another rank does that.
    """

    def __init__(self, places: Places, attempt: int, sink: Sink | None) -> None:
        self._places = places
        self._attempt = attempt
        self._sink = sink
        self._said: list[str] = []
        self._open: LayersMeasured | None = None

    def words(self, groups: Mapping[str, Sequence[float]]) -> list[float]:
        """Return this rank's part of the message; all ranks say the same groups."""
        self._said = list(groups)
        return [one for name in groups for one in self._places.part(name, groups[name])]

    def heard(self, step: int, sums: Sequence[float]) -> LayersMeasured:
        """Take the sum of all ranks' parts in a step; return what is known of it by now."""
        columns = self._places.columns
        new = LayersMeasured(
            time_unix=time.time(),
            attempt=self._attempt,
            step=step,
            columns=columns,
            values=np.full(columns.width, np.nan, dtype=np.float32),
        )
        at = 0
        for name in self._said:
            width = len(columns.names(name))
            one = self._open if name in _LATE else new
            if one is not None:
                one.values[columns.place(name)] = self._places.whole(name, sums[at : at + width])
            at += width
        self.flush()
        self._open = new
        return new

    def flush(self) -> None:
        """Hand on what is there."""
        record, self._open = self._open, None
        if record is not None and self._sink is not None and not np.isnan(record.values).all():
            self._sink(record)


class Careful:
    """Writes vectors, and stops doing so when they cannot be written, which it says once.

    A full disk must not end a training for the sake of what only watches it. The file is opened
    with the first vector, so that only the rank that has some makes one.
    """

    def __init__(self, path: Path, tell: Sink) -> None:
        self._path = path
        self._tell = tell
        self._writer: VectorWriter | None = None
        self._failed = False

    def __call__(self, record: Event) -> None:
        """Write a vector; tell any other event."""
        if not isinstance(record, LayersMeasured):
            self._tell(record)
            return
        if self._failed:
            return
        try:
            self._writer = self._writer or VectorWriter(self._path)
            self._writer.write(record)
        except CnaiError as error:
            self._failed = True
            self._tell(
                Finding(
                    time_unix=record.time_unix,
                    detector="recorder",
                    severity="warning",
                    message=f"layers are no longer recorded: {error.message}",
                    step=record.step,
                    evidence=(error.hint,),
                )
            )


def careful_sink(run: RunFolder, record: Sink) -> Sink:
    """Return what puts the vectors of a run into its folder, and all else where events go."""
    return Careful(run.layers_file, record)
