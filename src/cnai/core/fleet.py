"""Machines, and the part of them that a run may use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a run does at a moment; each phase needs other machines."""

    PREPARE = "prepare"
    TRAIN = "train"
    EVALUATE = "evaluate"
    COMPRESS = "compress"
    SERVE = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine.

    Attributes:
        device_kind: `cpu`, or a device model such as `H100-80GB`.
        devices: Devices for training ranks; for CPU-only machines the ranks it may hold.
        device_memory_bytes: Memory of one device; for CPU machines the memory shared by its ranks.
    """

    name: str
    cpus: int
    memory_bytes: int
    device_kind: str
    devices: int
    device_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines that a plan may count on."""

    nodes: tuple[Node, ...]

    @property
    def devices(self) -> int:
        """Devices over all nodes."""
        return sum(node.devices for node in self.nodes)

    def rank_memory_bytes(self, ranks: int) -> int:
        """Memory that one rank may use when `ranks` of them are spread over the fleet.

        A GPU belongs to one rank; the memory of a CPU machine is shared by the ranks on it.
        """
        smallest = min(self.nodes, key=lambda node: node.device_memory_bytes)
        if smallest.device_kind != "cpu":
            return smallest.device_memory_bytes
        per_node = -(-ranks // len(self.nodes))
        return smallest.device_memory_bytes // per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Ranks placed on one node."""

    node: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Whole gang or nothing: where each rank of a run goes in a phase, and why."""

    run: str
    phase: Phase
    shares: tuple[Share, ...]
    reason: str

    @property
    def ranks(self) -> int:
        """Ranks over all shares."""
        return sum(len(share.ranks) for share in self.shares)
