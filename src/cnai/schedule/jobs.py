"""The jobs as columns: one numpy row a job that waits or runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.demand import Demand, Slot
from cnai.schedule.goodput import Curve

Floats = NDArray[np.float64]


class State(IntEnum):
    """Whether a job has machines."""

    WAITING = 0
    RUNNING = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job, before it becomes a row.

    Attributes:
        demand: What one worker needs now, in the present phase.
        workers: Size of the gang that was asked for.
        least: Smallest gang that may run; equal to `workers` when it is not elastic.
        most: Largest gang of use.
        unit: Workers that belong together (tensor x pipeline size); sizes are multiples of it.
        curve: Speed by number of workers, None when it is not known.
        queue: Name of the queue.
        group: Who it is like, for predictions: user, queue or name of the work.
        declared_seconds: Time that it needs at `workers`, where the spec tells; else NaN.
        oracle_seconds: The true time, for yardsticks in simulations; else NaN.
        phase: What it does now; only told, in ledgers and lists.
    """

    name: str
    demand: Demand
    workers: int = 1
    least: int | None = None
    most: int | None = None
    unit: int = 1
    arrived: float = 0.0
    priority: int = 0
    queue: str = ""
    group: str = ""
    curve: Curve | None = None
    declared_seconds: float = float("nan")
    oracle_seconds: float = float("nan")
    phase: str = "steady"

    @property
    def elastic(self) -> bool:
        """Whether its number of workers may change."""
        least, most = self.least or self.workers, self.most or self.workers
        return self.curve is not None and least < most


_FLOATS = (
    "arrived", "size_milli", "attained", "since", "changed", "oracle_left", "declared_left",
    "waited",
)  # fmt: skip
_INTS = ("serial", "state", "workers", "asked", "priority", "queue", "resizes", "restarts",
         "elastic")  # fmt: skip


class Jobs:
    """Waiting and running jobs in columns, in order of arrival.

    Attributes:
        size_milli: Thousandths of GPUs of the gang that was asked for.
        attained: GPU-seconds held so far.
        since: When it last began to wait or to run.
        changed: When it was last started or resized.
        waited: Seconds that it waited in earlier turns.
        oracle_left: True seconds left at the asked size, NaN where a driver does not know.
        declared_left: Seconds left by what the spec tells, NaN where it does not.
        workers: Workers now, 0 while it waits.
        asked: Workers that were asked for.
    """

    arrived: Floats
    size_milli: Floats
    attained: Floats
    since: Floats
    changed: Floats
    waited: Floats
    oracle_left: Floats
    declared_left: Floats
    serial: NDArray[np.int64]
    state: NDArray[np.int64]
    workers: NDArray[np.int64]
    asked: NDArray[np.int64]
    priority: NDArray[np.int64]
    queue: NDArray[np.int64]
    resizes: NDArray[np.int64]
    restarts: NDArray[np.int64]
    elastic: NDArray[np.int64]

    def __init__(self) -> None:
        self.rows: list[JobRow] = []
        self.slots: list[tuple[Slot, ...]] = []
        self.queues: list[str] = []
        self._serial = 0
        self._room = 64
        self._store = {name: np.zeros(64) for name in _FLOATS}
        self._store |= {name: np.zeros(64, dtype=np.int64) for name in _INTS}
        self._show()

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: JobRow, now: float) -> int:
        """Append a job that waits, and return its place."""
        place = len(self.rows)
        if place == self._room:
            self._room *= 2
            self._store = {
                name: np.concatenate([column, np.zeros_like(column)])
                for name, column in self._store.items()
            }
        self.rows.append(row)
        self.slots.append(())
        if row.queue not in self.queues:
            self.queues.append(row.queue)
        self._serial += 1
        values = {
            "arrived": row.arrived,
            "size_milli": row.demand.total_milli * row.workers,
            "since": now,
            "changed": -np.inf,
            "oracle_left": row.oracle_seconds,
            "declared_left": row.declared_seconds,
            "serial": self._serial,
            "asked": row.workers,
            "priority": row.priority,
            "queue": self.queues.index(row.queue),
            "elastic": row.elastic,
        }
        for name, column in self._store.items():
            column[place] = values.get(name, 0)
        self._show()
        return place

    def remove(self, places: Sequence[int]) -> None:
        """Drop jobs; those behind them move up."""
        if list(places) == [len(self.rows) - 1]:
            self.rows.pop()
            self.slots.pop()
            self._show()
            return
        keep = np.ones(len(self.rows), dtype=np.bool_)
        keep[list(places)] = False
        size = int(keep.sum())
        for column in self._store.values():
            column[:size] = column[: len(self.rows)][keep]
        gone = set(places)
        self.rows = [row for place, row in enumerate(self.rows) if place not in gone]
        self.slots = [slots for place, slots in enumerate(self.slots) if place not in gone]
        self._show()

    def place_of(self, name: str) -> int:
        """Return the row of a job.

        Raises:
            KeyError: No job has this name.
        """
        for place, row in enumerate(self.rows):
            if row.name == name:
                return place
        raise KeyError(name)

    def change_phase(self, place: int, row: JobRow, now: float) -> None:
        """Let a job that waits go on with another demand, of its next phase."""
        self.rows[place] = row
        self.size_milli[place] = row.demand.total_milli * row.workers
        self.asked[place] = row.workers
        self.elastic[place] = row.elastic
        self.oracle_left[place] = row.oracle_seconds
        self.declared_left[place] = row.declared_seconds
        self.since[place] = now

    @property
    def held_milli(self) -> Floats:
        """Thousandths of GPUs that each job holds now."""
        return self.size_milli * self.workers / np.maximum(self.asked, 1)

    def _show(self) -> None:
        size = len(self.rows)
        for name, column in self._store.items():
            setattr(self, name, column[:size])
