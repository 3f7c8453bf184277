"""Seconds of a collective over ranks that lie in nodes.

A ring passes each byte over every link once, so that of a group that spans nodes the slower of two
links decides: that inside a node, and the network cards that the group's members in one node have
together. Sources: ring collectives from Thakur et al. 2005, Int. J. High Performance Computing
Applications 19(1); a sum is a scatter and a gather (Patarasuk and Yuan 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from cnai.plan.devices import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that talk: so many, each `stride` ranks after the one before."""

    members: int
    stride: int = 1

    @property
    def span(self) -> int:
        """Consecutive ranks that it covers."""
        return self.members * self.stride

    def inside(self, per_node: int) -> int:
        """Members in one node."""
        return max(1, min(self.members, per_node // self.stride))


def bus(device: Device, per_node: int, group: Group) -> tuple[float, float]:
    """Return bytes a second that a ring over the group carries, and seconds of an empty one."""
    constants = device.constants
    node = device.node_bytes_per_second * constants.node
    inside = group.inside(per_node)
    latency = constants.node_latency * (1 + log2(inside)) / 2 if inside > 1 else 0.0
    if group.span <= per_node:
        return node, latency
    cards = device.network_bytes_per_second * constants.network * inside
    nodes = max(2.0, group.members / inside)
    return min(node, cards), latency + constants.network_latency * log2(nodes)


def gather_seconds(device: Device, per_node: int, group: Group, payload: float) -> float:
    """Time of a gather (or scatter) whose result (or input) has `payload` bytes."""
    if group.members == 1:
        return 0.0
    rate, latency = bus(device, per_node, group)
    return payload * (group.members - 1) / group.members / rate + latency


def sum_seconds(device: Device, per_node: int, group: Group, payload: float) -> float:
    """Time in which every member gets the sum of all members' `payload` bytes."""
    return 2 * gather_seconds(device, per_node, group, payload)


def exchange_seconds(device: Device, per_node: int, group: Group, payload: float) -> float:
    """Time of an all-to-all in which a member has `payload` bytes, its own share among them.

    Unlike in a ring a rank's bytes go straight to their reader, so that a card carries all that
    leaves its node.
    """
    if group.members == 1:
        return 0.0
    constants = device.constants
    inside = group.inside(per_node)
    near = payload * (inside - 1) / group.members
    far = payload * (group.members - inside) / group.members
    seconds = near / (device.node_bytes_per_second * constants.node)
    latency = constants.node_latency
    if group.span > per_node:
        seconds = max(seconds, far / (device.network_bytes_per_second * constants.network))
        latency += constants.network_latency
    return seconds + latency


def send_seconds(device: Device, per_node: int, distance: int, payload: float) -> float:
    """Time in which a rank sends `payload` bytes to the one `distance` ranks further."""
    constants = device.constants
    if distance < per_node:
        rate, latency = device.node_bytes_per_second * constants.node, constants.node_latency / 2
    else:
        rate = device.network_bytes_per_second * constants.network
        latency = constants.network_latency
    return payload / rate + latency
