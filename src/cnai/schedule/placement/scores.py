"""Which node one worker should go to: a score a node, kept and mended where something changed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.demand import WHOLE, Demand, Slot
from cnai.schedule.nodes import Ints, Nodes
from cnai.schedule.placement.fragmentation import Fragmentation

Floats = NDArray[np.float64]
UNFIT = -np.inf
_TIE = 1e9
_SLOPE = 400.0
_LEVELS = 60


class Scorer(Protocol):
    """Chooses the node for a worker."""

    def choose(self, nodes: Nodes, demand: Demand) -> Slot | None:
        """Return a slot for one worker, or None when no node can take it."""
        ...


@dataclass(slots=True)
class _Kept:
    """Scores of one demand, true up to a place in the log of changes."""

    score: Floats
    place: Ints
    seen: int


class KeptScorer:
    """Scores that are computed once a demand, then only for the nodes that changed since."""

    def __init__(self) -> None:
        self._kept: dict[Demand, _Kept] = {}
        self._nodes: Nodes | None = None

    def choose(self, nodes: Nodes, demand: Demand) -> Slot | None:
        """Return the slot with the highest score; of equals the first node."""
        kept = self._fresh(nodes, demand)
        node = int(kept.score.argmax()) if len(nodes) else 0
        if not len(nodes) or kept.score[node] == UNFIT:
            return None
        if demand.shares:
            return Slot(node, 1, (int(kept.place[node]),))
        return Slot(node, 1, nodes.free_gpus(node, demand.gpus) if demand.gpus else ())

    @abstractmethod
    def score(self, nodes: Nodes, demand: Demand, rows: Ints) -> tuple[Floats, Ints]:
        """Return the score of these rows that all fit, and for shares the place of the GPU."""

    def _fresh(self, nodes: Nodes, demand: Demand) -> _Kept:
        if self._nodes is not nodes:
            self._kept, self._nodes = {}, nodes
        kept = self._kept.get(demand)
        now = len(nodes.changes)
        if kept is None:
            size = len(nodes)
            kept = _Kept(np.full(size, UNFIT), np.zeros(size, dtype=np.int64), now)
            self._kept[demand] = kept
            self._mend(nodes, demand, kept, np.arange(size))
        elif kept.seen < now:
            fresh = nodes.changes[kept.seen :]
            self._mend(nodes, demand, kept, np.array(sorted(set(fresh)), dtype=np.int64))
            kept.seen = now
        return kept

    def _mend(self, nodes: Nodes, demand: Demand, kept: _Kept, rows: Ints) -> None:
        good = _fitting(nodes, demand, rows)
        kept.score[rows] = UNFIT
        rows = rows[good]
        if rows.size:
            kept.score[rows], kept.place[rows] = self.score(nodes, demand, rows)


class BestFit(KeptScorer):
    """The node that is left with least, of CPU and of GPU, each over the largest node's."""

    def score(self, nodes: Nodes, demand: Demand, rows: Ints) -> tuple[Floats, Ints]:
        """Return minus what is left; a share goes on the fullest GPU that has room."""
        return -leftover(nodes, demand, rows), fullest(nodes.gpu_left[rows], demand)


class QuantisedGradient(KeptScorer):
    """The node where least becomes useless, in 60 levels; within a level best fit.

    Without the levels the gradient follows its own noise, and with ties left to chance the gain is
    lost again.
    """

    def __init__(self, fragmentation: Fragmentation, *, ties: bool = True) -> None:
        super().__init__()
        self.fragmentation = fragmentation
        self.ties = ties

    def score(self, nodes: Nodes, demand: Demand, rows: Ints) -> tuple[Floats, Ints]:
        """Return level and tie in one number."""
        measure = self.fragmentation
        left = nodes.gpu_left[rows]
        cpu = nodes.cpu_left[rows]
        total = nodes.gpu_total[rows]
        allowed = measure.allowed(nodes)[rows]
        packed = measure.packed(left)
        before = measure.useless(packed, cpu, total, allowed)
        cpu_after = cpu - demand.cpu_milli
        tie = leftover(nodes, demand, rows) if self.ties else np.zeros(len(rows))
        if demand.shares:
            cells = measure.table[left]
            moved = packed[:, None] - cells + measure.table[np.maximum(left - demand.gpu_milli, 0)]
            after = measure.useless(
                moved,
                np.broadcast_to(cpu_after[:, None], left.shape),
                np.broadcast_to((total - demand.gpu_milli)[:, None], left.shape),
                allowed[:, None, :],
            )
            levels = _levels(before[:, None] - after) * _TIE - left
            levels[left < demand.gpu_milli] = UNFIT
            place = levels.argmax(axis=1)
            level = np.ceil(levels[np.arange(len(rows)), place] / _TIE)
            return level * _TIE - tie, place
        gone = measure.table[WHOLE] * np.int32(demand.gpus)
        after = measure.useless(packed - gone, cpu_after, total - demand.total_milli, allowed)
        return _levels(before - after) * _TIE - tie, np.zeros(len(rows), dtype=np.int64)


class AnyFit:
    """A node by chance, and for shares a GPU by chance: the yardstick."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def choose(self, nodes: Nodes, demand: Demand) -> Slot | None:
        """Return any slot that fits."""
        good = np.flatnonzero(nodes.fits(demand))
        if not good.size:
            return None
        node = int(self.random.choice(good))
        if not demand.shares:
            return Slot(node, 1, nodes.free_gpus(node, demand.gpus) if demand.gpus else ())
        places = np.flatnonzero(nodes.gpu_left[node] >= demand.gpu_milli)
        return Slot(node, 1, (int(self.random.choice(places)),))


def leftover(nodes: Nodes, demand: Demand, rows: Ints) -> Floats:
    """Return what is left of each node after the worker, between 0 and 1."""
    cpu = (nodes.cpu_left[rows] - demand.cpu_milli) / max(int(nodes.cpu.max()), 1)
    gpu = (nodes.gpu_total[rows] - demand.total_milli) / max(nodes.widest * WHOLE, 1)
    return np.asarray((cpu + gpu) / 2, dtype=np.float64)


def fullest(left: Ints, demand: Demand) -> Ints:
    """Return the place of the GPU with the smallest rest that fits, for each row."""
    if not demand.shares:
        return np.zeros(len(left), dtype=np.int64)
    rest = np.where(left >= demand.gpu_milli, left, 2 * WHOLE)
    return np.asarray(rest.argmin(axis=1), dtype=np.int64)


def _fitting(nodes: Nodes, demand: Demand, rows: Ints) -> NDArray[np.bool_]:
    good = nodes.up[rows] & (nodes.cpu_left[rows] >= demand.cpu_milli)
    good &= nodes.memory_left[rows] >= demand.memory_mib
    if demand.models:
        good &= nodes.mask(demand.models)[rows]
    if demand.shares:
        good &= nodes.gpu_left[rows].max(axis=1) >= demand.gpu_milli
    elif demand.gpus:
        good &= nodes.whole[rows] >= demand.gpus
    return good


def _levels(gain: Floats) -> Floats:
    """Cut a gain in thousandths of a GPU into 60 levels, finest around zero."""
    return np.asarray(np.floor(_LEVELS / (1.0 + np.exp(-gain / _SLOPE))), dtype=np.float64)
