"""How much of a node is of no use to the work that usually comes.

Source: Weng et al. 2023, "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC). The measure is theirs; the score is cut into 60
levels, and nodes of one level are told apart by best fit, which is worth more than the measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.demand import WHOLE, Demand
from cnai.schedule.nodes import Ints, Nodes

COVERED = 0.95
"""Share of the work that the typical demands stand for; rarer ones are left out."""

_COUNT = 1 << 16


class Fragmentation:
    """The typical demands, as tables that answer for many nodes at once.

    A GPU's useless part is its rest where the rest is smaller than a demand needs; where a demand
    does not fit on the node at all, or needs no GPU, the whole rest of the node is useless to it.
    """

    def __init__(self, seen: Iterable[Demand]) -> None:
        typical = _typical(Counter(seen))
        with_gpu = [(demand, share) for demand, share in typical if demand.gpus]
        self.no_gpu = sum(share for demand, share in typical if not demand.gpus)
        self.share = np.array([share for _, share in with_gpu], dtype=np.float64)
        self.cpu = np.array([demand.cpu_milli for demand, _ in with_gpu], dtype=np.int64)
        self.gpus = np.array([demand.gpus for demand, _ in with_gpu], dtype=np.int32)
        self.models = [demand.models for demand, _ in with_gpu]
        need = np.array([demand.gpu_milli for demand, _ in with_gpu], dtype=np.int32)
        left = np.arange(WHOLE + 1, dtype=np.int32)[:, None]
        # One gather gives both: GPUs that fit in the upper half, useless thousandths in the lower.
        self.table = np.where(left >= need, _COUNT, left).astype(np.int32)
        self._allowed: NDArray[np.bool_] | None = None
        self._nodes: Nodes | None = None

    def allowed(self, nodes: Nodes) -> NDArray[np.bool_]:
        """Return which node has a GPU model that a typical demand takes, shape (nodes, types)."""
        if self._allowed is None or self._nodes is not nodes:
            columns = [nodes.mask(models) for models in self.models]
            empty = np.ones((len(nodes), 0), dtype=np.bool_)
            self._allowed = np.stack(columns, axis=1) if columns else empty
            self._nodes = nodes
        return self._allowed

    def packed(self, left: Ints) -> NDArray[np.int32]:
        """Return the sums of `table` over the GPUs of each node, shape (nodes, types)."""
        # Column by column: a sum over a middle axis of eight is several times as slow.
        sums = self.table.take(left[:, 0], axis=0)
        for place in range(1, left.shape[1]):
            sums += self.table.take(left[:, place], axis=0)
        return sums

    def useless(
        self, packed: NDArray[np.int32], cpu: Ints, total: Ints, allowed: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the expected useless thousandths.

        Args:
            packed: Sums of `table` over the GPUs of a node, shape (..., types).
            cpu: Thousandths of cores that are left, shape (...).
            total: Thousandths of GPUs that are left, shape (...).
            allowed: Where the model of the GPU will do, shape (..., types) or broadcastable.
        """
        fitting = (packed >= self.gpus * _COUNT) & allowed & (cpu[..., None] >= self.cpu)
        wasted = np.where(fitting, packed & (_COUNT - 1), total[..., None])
        return np.asarray(wasted @ self.share + self.no_gpu * total, dtype=np.float64)


def _typical(counts: Counter[Demand]) -> list[tuple[Demand, float]]:
    """Keep the most frequent demands that cover 95 %, with their shares of what is kept."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], repr(item[0])))
    whole = sum(counts.values())
    kept: list[tuple[Demand, int]] = []
    covered = 0
    for demand, count in ordered:
        kept.append((demand, count))
        covered += count
        if covered >= COVERED * whole:
            break
    return [(demand, count / covered) for demand, count in kept]
