"""The machines as columns: one numpy row a node, so that a question to all of them is one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.demand import WHOLE, Demand, Slot

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class OverCommitError(RuntimeError):
    """Something was given away that is not there; a bug of the caller, never of a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One machine, before it becomes a row.

    Attributes:
        rack: Smallest group of nodes with fast links; any text.
        block: Group of racks.
        micros_per_gpu_hour: Price of a GPU, in millionths of the currency.
        spot: Whether it may be taken away with a short notice.
    """

    name: str
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    model: str = ""
    rack: str = ""
    block: str = ""
    micros_per_gpu_hour: int = 0
    spot: bool = False


class Nodes:
    """Machines in columns; what is left of each changes by `take` and `give` alone.

    Attributes:
        gpu_left: Thousandths left, shape (nodes, widest); places that a node lacks hold 0.
        whole: GPUs of a node that are wholly free.
        gpu_total: Thousandths left over all GPUs of a node.
        changes: Every row that changed, in order; score caches read from where they stopped.
    """

    def __init__(self, rows: Sequence[NodeRow]) -> None:
        self.names = [row.name for row in rows]
        self.gpus = _column(rows, "gpus")
        self.cpu_left = _column(rows, "cpu_milli")
        self.memory_left = _column(rows, "memory_mib")
        self.cpu = self.cpu_left.copy()
        self.memory = self.memory_left.copy()
        self.price = _column(rows, "micros_per_gpu_hour")
        self.spot = np.array([row.spot for row in rows], dtype=np.bool_)
        self.up = np.ones(len(rows), dtype=np.bool_)
        self.models = [row.model for row in rows]
        self.rack = _codes([row.rack for row in rows])
        self.block = _codes([row.block for row in rows])
        self.widest = int(self.gpus.max(initial=0))
        places = np.arange(max(self.widest, 1))
        self.gpu_left = np.where(places < self.gpus[:, None], WHOLE, 0).astype(np.int64)
        self.whole = self.gpus.copy()
        self.gpu_total = self.gpus * WHOLE
        self.changes: list[int] = []
        self._masks: dict[tuple[str, ...], Bools] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def capacity_milli(self) -> int:
        """Thousandths of GPUs on nodes that are up."""
        return int(self.gpus[self.up].sum()) * WHOLE

    @property
    def free_milli(self) -> int:
        """Thousandths of GPUs that nobody holds, on nodes that are up."""
        return int(self.gpu_total[self.up].sum())

    def mask(self, models: tuple[str, ...]) -> Bools:
        """Return which nodes have one of these GPU models; no model means all nodes."""
        found = self._masks.get(models)
        if found is None:
            wanted = set(models)
            found = np.array([not wanted or model in wanted for model in self.models], np.bool_)
            self._masks[models] = found
        return found

    def fits(self, demand: Demand) -> Bools:
        """Return which nodes can take one worker now."""
        good = self.up & (self.cpu_left >= demand.cpu_milli)
        good &= self.memory_left >= demand.memory_mib
        if demand.models:
            good &= self.mask(demand.models)
        if demand.shares:
            good &= self.gpu_left.max(axis=1) >= demand.gpu_milli
        elif demand.gpus:
            good &= self.whole >= demand.gpus
        return good

    def room(self, demand: Demand) -> Ints:
        """Return how many workers each node can take now."""
        room = np.where(self.up & self.mask(demand.models), np.int64(1) << 40, 0)
        if demand.cpu_milli:
            np.minimum(room, self.cpu_left // demand.cpu_milli, out=room)
        if demand.memory_mib:
            np.minimum(room, self.memory_left // demand.memory_mib, out=room)
        if demand.shares:
            np.minimum(room, (self.gpu_left // demand.gpu_milli).sum(axis=1), out=room)
        elif demand.gpus:
            np.minimum(room, self.whole // demand.gpus, out=room)
        return room

    def free_gpus(self, node: int, count: int) -> tuple[int, ...]:
        """Return the first wholly free GPUs of a node."""
        return tuple(np.flatnonzero(self.gpu_left[node] == WHOLE)[:count].tolist())

    def slot(self, node: int, demand: Demand, workers: int) -> Slot:
        """Choose the GPUs for workers on a node, for shares the fullest that still fits."""
        if not demand.gpus:
            return Slot(node, workers)
        if not demand.shares:
            return Slot(node, workers, self.free_gpus(node, demand.gpus * workers))
        left = self.gpu_left[node].copy()
        chosen = []
        for _ in range(workers):
            fitting = np.where(left >= demand.gpu_milli, left, 2 * WHOLE)
            place = int(fitting.argmin())
            left[place] -= demand.gpu_milli
            chosen.append(place)
        return Slot(node, workers, tuple(chosen))

    def take(self, demand: Demand, slots: Sequence[Slot]) -> None:
        """Hand out what the workers in these slots need.

        Raises:
            OverCommitError: A node has less than that; nothing is taken.
        """
        for done, slot in enumerate(slots):
            if not self.can_take(demand, slot):
                for undo in slots[:done]:
                    self._move(demand, undo, 1)
                raise OverCommitError(f"node {self.names[slot.node]} lacks {demand} for {slot}")
            self._move(demand, slot, -1)

    def give(self, demand: Demand, slots: Sequence[Slot]) -> None:
        """Take back what `take` handed out."""
        for slot in slots:
            self._move(demand, slot, 1)

    def can_take(self, demand: Demand, slot: Slot) -> bool:
        """Tell whether the very places of a slot are free."""
        node = slot.node
        if not self.up[node] or self.cpu_left[node] < demand.cpu_milli * slot.workers:
            return False
        if self.memory_left[node] < demand.memory_mib * slot.workers:
            return False
        if len(slot.gpus) != demand.gpus * slot.workers:
            return False
        left = self.gpu_left[node]
        if len(set(slot.gpus)) == len(slot.gpus):
            return all(left[place] >= demand.gpu_milli for place in slot.gpus)
        wanted = np.bincount(slot.gpus, minlength=len(left)) * demand.gpu_milli
        return bool((left >= wanted).all())

    def _move(self, demand: Demand, slot: Slot, sign: int) -> None:
        node = slot.node
        self.cpu_left[node] += sign * demand.cpu_milli * slot.workers
        self.memory_left[node] += sign * demand.memory_mib * slot.workers
        if slot.gpus:
            left = self.gpu_left[node]
            for place in slot.gpus:
                left[place] += sign * demand.gpu_milli
            self.gpu_total[node] += sign * demand.gpu_milli * len(slot.gpus)
            self.whole[node] = np.count_nonzero(left == WHOLE)
        self.changes.append(node)

    def set_up(self, node: int, *, up: bool) -> None:
        """Say that a node came or went."""
        self.up[node] = up
        self.changes.append(node)


class Trial:
    """Takes and gives on a table that are all undone at the end: a decision changes nothing."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._journal: list[tuple[int, Demand, Sequence[Slot]]] = []

    def take(self, demand: Demand, slots: Sequence[Slot]) -> None:
        """Hand out for the length of the trial."""
        self.nodes.take(demand, slots)
        self._journal.append((1, demand, slots))

    def give(self, demand: Demand, slots: Sequence[Slot]) -> None:
        """Take back for the length of the trial."""
        self.nodes.give(demand, slots)
        self._journal.append((-1, demand, slots))

    def undo(self) -> None:
        """Put everything back as it was."""
        for sign, demand, slots in reversed(self._journal):
            for slot in slots:
                self.nodes._move(demand, slot, sign)
        self._journal.clear()


@contextmanager
def trial_of(nodes: Nodes) -> Iterator[Trial]:
    """Give a trial that is undone whatever happens."""
    trial = Trial(nodes)
    try:
        yield trial
    finally:
        trial.undo()


def _column(rows: Sequence[NodeRow], field: str) -> Ints:
    return np.array([getattr(row, field) for row in rows], dtype=np.int64)


def _codes(texts: Sequence[str]) -> Ints:
    """Number the texts; an empty one is a group of its own."""
    seen: dict[str, int] = {}
    return np.array(
        [seen.setdefault(text or f"\0{row}", len(seen)) for row, text in enumerate(texts)],
        dtype=np.int64,
    )
