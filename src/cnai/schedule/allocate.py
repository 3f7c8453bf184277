"""Give the ranks of a run their places: the whole gang, or nothing."""

from __future__ import annotations

from cnai.core.errors import ClusterError
from cnai.core.fleet import Allocation, Fleet, Node, Phase, Share


def allocate(run: str, phase: Phase, ranks: int, fleet: Fleet, *, group: int = 1) -> Allocation:
    """Place the ranks of a phase on as few nodes as possible.

    Training takes every rank at once, since ranks that wait for a missing one only cost money; the
    other phases take one place, on a CPU machine where there is one. `group` consecutive ranks (a
    tensor-parallel group, which talks in every layer) share a node whenever one is large enough.

    Raises:
        ClusterError: There are not enough places; says how many are missing.

    Source: gang scheduling after Ousterhout 1982, "Scheduling Techniques for Concurrent Systems".
    """
    if phase is not Phase.TRAIN:
        return _one_place(run, phase, fleet)
    widest = max((node.devices for node in fleet.nodes), default=0)
    unit = group if group <= widest and ranks % group == 0 else 1
    shares = _pack(ranks // unit, unit, fleet)
    placed = sum(len(share.ranks) for share in shares)
    if placed < ranks:
        raise _missing(run, ranks, placed, unit, fleet)
    kept = f", groups of {group} kept inside a node" if unit > 1 else ""
    torn = f"; no node holds a group of {group}" if unit < group else ""
    return Allocation(
        run=run,
        phase=phase,
        shares=shares,
        reason=f"{ranks} ranks together on {_nodes(len(shares))}, the fewest that hold them"
        f"{kept}{torn}",
    )


def _one_place(run: str, phase: Phase, fleet: Fleet) -> Allocation:
    free = [node for node in fleet.nodes if node.devices > 0]
    if not free:
        raise _missing(run, 1, 0, 1, fleet)
    node = min(free, key=lambda node: (node.device_kind != "cpu", node.devices))
    return Allocation(
        run=run,
        phase=phase,
        shares=(Share(node=node.name, ranks=(0,)),),
        reason=f"{phase.value} needs one place; {node.name} is the cheapest that has one",
    )


def _pack(units: int, size: int, fleet: Fleet) -> tuple[Share, ...]:
    """Fill the largest nodes first, and put the last units on the smallest that takes them."""
    left = sorted(fleet.nodes, key=_rank_of_node)
    shares: list[Share] = []
    first = 0
    while units and left:
        node = _next_node(units, size, left)
        left.remove(node)
        taken = min(units, node.devices // size)
        if taken:
            shares.append(Share(node=node.name, ranks=tuple(range(first, first + taken * size))))
            first += taken * size
            units -= taken
    return tuple(shares)


def _rank_of_node(node: Node) -> tuple[bool, int]:
    return node.device_kind == "cpu", -node.devices


def _next_node(units: int, size: int, left: list[Node]) -> Node:
    """Return the smallest node of the best kind that takes all units, else the largest."""
    best_kind = [node for node in left if (node.device_kind == "cpu") == _is_cpu(left[0])]
    enough = [node for node in best_kind if node.devices // size >= units]
    return min(enough, key=lambda node: node.devices) if enough else left[0]


def _is_cpu(node: Node) -> bool:
    return node.device_kind == "cpu"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _missing(run: str, ranks: int, placed: int, unit: int, fleet: Fleet) -> ClusterError:
    grouped = f" in groups of {unit} on one node" if unit > 1 else ""
    less = f", or set `resources.ranks: {placed}` or smaller parallel sizes" if placed else ""
    return ClusterError(
        f"run `{run}` needs {ranks} places{grouped}, but {_nodes(len(fleet.nodes))} with "
        f"{fleet.devices} devices give {placed}: {ranks - placed} are missing",
        where="resources",
        hint=f"add machines that give {ranks - placed} places more{less}",
    )
