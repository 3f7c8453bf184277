"""Where a whole gang goes: one node if one will do, else the smallest group that holds it."""

from __future__ import annotations

import numpy as np

from cnai.schedule.demand import Demand, Slot
from cnai.schedule.nodes import Ints, Nodes
from cnai.schedule.placement.scores import Scorer


def place_gang(
    nodes: Nodes, demand: Demand, workers: int, scorer: Scorer
) -> tuple[Slot, ...] | None:
    """Return slots for all workers, or None when they do not all fit.

    A gang that fits on one node is placed as one demand by the scorer. A larger one goes into the
    fullest rack that holds it, else the fullest block, else anywhere; there the nodes with most
    room are filled first and the rest goes where it fits best, so that it lies on few nodes.
    """
    together = demand.times(workers) if not demand.shares else demand
    if workers == 1 or (not demand.shares and together.gpus <= nodes.widest):
        slot = scorer.choose(nodes, together)
        if slot is not None:
            return (Slot(slot.node, workers, slot.gpus),)
        if workers == 1:
            return None
    room = nodes.room(demand)
    if int(room.sum()) < workers:
        return None
    rows = _domain(nodes, room, workers)
    return _fill(nodes, demand, workers, rows, room[rows])


def _domain(nodes: Nodes, room: Ints, workers: int) -> Ints:
    """Return the rows of the smallest group that holds the gang; of equals the fullest."""
    for groups in (nodes.rack, nodes.block):
        held = np.bincount(groups, weights=room)
        enough = np.flatnonzero(held >= workers)
        if enough.size:
            return np.flatnonzero(groups == enough[held[enough].argmin()])
    return np.flatnonzero(room > 0)


def _fill(nodes: Nodes, demand: Demand, workers: int, rows: Ints, room: Ints) -> tuple[Slot, ...]:
    """Take the roomiest nodes, and for the last workers the tightest that has room."""
    order = np.argsort(-room, kind="stable")
    rows, room = rows[order], room[order]
    full = int(np.searchsorted(np.cumsum(room), workers))
    taken = [(int(rows[place]), int(room[place])) for place in range(full)]
    rest = workers - sum(count for _, count in taken)
    if rest:
        # Rooms fall, so the tightest node with room for the rest is the last one that has it.
        last = int(np.searchsorted(-room, -rest, side="right")) - 1
        taken.append((int(rows[max(last, full)]), rest))
    return tuple(nodes.slot(node, demand, count) for node, count in taken)
