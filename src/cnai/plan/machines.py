"""A fleet as the estimates see it, where the weakest part sets the pace."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.errors import SpecError
from cnai.core.fleet import Fleet
from cnai.plan.devices import Device, device_named

USABLE = 0.95
"""Share of a device that a plan may fill; the rest is lost to gaps between blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """A fleet as the estimates see it, where the weakest part sets the pace.

    Attributes:
        device: The slowest kind in the fleet.
        per_node: Devices on the smallest node.
        cpus_per_node: CPU cores on the smallest node.
    """

    fleet: Fleet
    device: Device
    per_node: int
    cpus_per_node: int

    @classmethod
    def of(cls, fleet: Fleet) -> Machines:
        """Look up the fleet's devices.

        Raises:
            SpecError: A node's device is unknown, or there is no node.
        """
        if not fleet.nodes:
            raise SpecError(
                "the fleet has no machine",
                where="resources.nodes",
                hint="set `resources.nodes: 1` or more",
            )
        devices = [device_named(node.device_kind) for node in fleet.nodes]
        return cls(
            fleet=fleet,
            device=min(devices, key=lambda device: device.bf16_flops),
            per_node=max(1, min(node.devices for node in fleet.nodes)),
            cpus_per_node=max(1, min(node.cpus for node in fleet.nodes)),
        )

    def rank_flops(self, precision: str, ranks: int) -> float:
        """Peak rate of one rank; the cores of a CPU machine are shared by the ranks on it."""
        peak = self.device.flops(precision)
        if self.device.name != "cpu":
            return peak
        ranks_on_node = -(-ranks // len(self.fleet.nodes))
        return peak * self.cpus_per_node / ranks_on_node

    def share_of_node(self, ranks: int) -> float:
        """Return 1, or for a CPU machine the share of its cores that one rank has, in cores."""
        return self.rank_flops("float32", ranks) / self.device.fp32_flops

    def usable_bytes(self, ranks: int) -> int:
        """Memory that a plan may fill; the rest is lost to gaps between the allocator's blocks."""
        return int(self.fleet.rank_memory_bytes(ranks) * USABLE)
