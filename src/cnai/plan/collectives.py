"""Seconds of a collective over ranks that lie in nodes.

Of a group that spans nodes the slower of two links decides: that inside a node, over which members
pass on all that the others have, and the network cards of the group's members in one node together,
over which comes only what other nodes have. Sources: ring collectives from Thakur et al. 2005, Int.
J. High Performance Computing Applications 19(1); a sum is a scatter and a gather (Patarasuk and
Yuan 2009).
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


def latency(device: Device, per_node: int, group: Group) -> float:
    """Return seconds of an empty collective."""
    constants = device.constants
    inside = group.inside(per_node)
    seconds = constants.node_latency * (inside - 1)
    if group.span > per_node:
        seconds += constants.network_latency * log2(max(2.0, group.members / inside))
    return seconds


def gather_seconds(device: Device, per_node: int, group: Group, payload: float) -> float:
    """Time of a gather (or scatter) whose result (or input) has `payload` bytes.

    Into a node goes what the other nodes have, over all cards that the group has there; the
    members pass all of it on to each other.
    """
    members = group.members
    if members == 1:
        return 0.0
    constants, inside = device.constants, group.inside(per_node)
    seconds = 0.0
    if inside > 1:
        rate = device.node_bytes_per_second * constants.node
        seconds = payload * (members - 1) / members / rate
    if group.span > per_node:
        nodes = max(2.0, members / inside)
        cards = device.network_bytes_per_second * constants.network * inside
        seconds = max(seconds, payload * (nodes - 1) / nodes / cards)
    return seconds + latency(device, per_node, group)


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
    empty = constants.node_latency
    if group.span > per_node:
        seconds = max(seconds, far / (device.network_bytes_per_second * constants.network))
        empty += constants.network_latency
    return seconds + empty


def send_seconds(device: Device, per_node: int, distance: int, payload: float) -> float:
    """Time in which a rank sends `payload` bytes to the one `distance` ranks further."""
    constants = device.constants
    if distance < per_node:
        rate, empty = device.node_bytes_per_second * constants.node, constants.node_latency / 2
    else:
        rate = device.network_bytes_per_second * constants.network
        empty = constants.network_latency
    return payload / rate + empty + constants.send_seconds
