"""What is publicly known about devices: memory, speed, links.

Sources: NVIDIA's data sheets of V100 (2020), A100 (2021), H100 (2023), H200 (2024) and B200
(2025), dense rates without sparsity, SXM forms; links are one direction of NVLink in a node and
one network card a device between nodes, as the vendor's DGX systems have them. Memory is what the
driver reports, which is less than the name says.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from cnai.core.errors import SpecError
from cnai.core.fleet import Fleet

GIB = 2**30
TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of device; for `cpu` the rates are those of one core.

    Attributes:
        memory_bytes: Memory of one device; 0 for `cpu`, where the machine says it.
        bf16_flops: Dense matrix products a second in bfloat16 with float32 sums.
        fp32_flops: The same in float32 without reduced-precision tensor cores.
        node_bytes_per_second: One direction of the link to another device of the same node.
        network_bytes_per_second: One direction of the device's share of the node's network.
        latency_seconds: Time of an empty collective.
        layer_seconds: Fixed cost of starting the kernels of one layer, forward and backward.
        fused_norm: Whether RMSNorm runs as one kernel; otherwise it keeps its unscaled output too.
        overhead_bytes: Memory taken before the first weight: driver context, libraries, buffers of
            the collectives.
    """

    name: str
    memory_bytes: int
    bf16_flops: float
    fp32_flops: float
    node_bytes_per_second: float
    network_bytes_per_second: float
    latency_seconds: float = 20e-6
    layer_seconds: float = 200e-6
    fused_norm: bool = True
    overhead_bytes: int = 2 * GIB

    def flops(self, precision: str) -> float:
        """Peak rate of matrix products in a precision of the spec."""
        return self.bf16_flops if precision == "bfloat16" else self.fp32_flops


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        # A core with 256-bit vectors at 3 GHz; without matrix units bfloat16 is no faster. Link,
        # latency and overhead are those of gloo and torch on one small machine.
        Device(
            name="cpu",
            memory_bytes=0,
            bf16_flops=0.096 * TERA,
            fp32_flops=0.096 * TERA,
            node_bytes_per_second=1 * GIGA,
            network_bytes_per_second=1 * GIGA,
            latency_seconds=300e-6,
            layer_seconds=2e-3,
            fused_norm=False,
            overhead_bytes=300 * 2**20,
        ),
        # V100 has tensor cores for float16 only; bfloat16 runs at the rate of float32.
        Device(
            name="V100-32GB",
            memory_bytes=int(31.7 * GIB),
            bf16_flops=15.7 * TERA,
            fp32_flops=15.7 * TERA,
            node_bytes_per_second=150 * GIGA,
            network_bytes_per_second=6.25 * GIGA,
        ),
        Device(
            name="A100-40GB",
            memory_bytes=int(39.4 * GIB),
            bf16_flops=312 * TERA,
            fp32_flops=19.5 * TERA,
            node_bytes_per_second=300 * GIGA,
            network_bytes_per_second=25 * GIGA,
        ),
        Device(
            name="A100-80GB",
            memory_bytes=int(79.1 * GIB),
            bf16_flops=312 * TERA,
            fp32_flops=19.5 * TERA,
            node_bytes_per_second=300 * GIGA,
            network_bytes_per_second=25 * GIGA,
        ),
        Device(
            name="H100-80GB",
            memory_bytes=int(79.1 * GIB),
            bf16_flops=989 * TERA,
            fp32_flops=67 * TERA,
            node_bytes_per_second=450 * GIGA,
            network_bytes_per_second=50 * GIGA,
        ),
        Device(
            name="H200-141GB",
            memory_bytes=int(139.8 * GIB),
            bf16_flops=989 * TERA,
            fp32_flops=67 * TERA,
            node_bytes_per_second=450 * GIGA,
            network_bytes_per_second=50 * GIGA,
        ),
        Device(
            name="B200",
            memory_bytes=178 * GIB,
            bf16_flops=2250 * TERA,
            fp32_flops=75 * TERA,
            node_bytes_per_second=900 * GIGA,
            network_bytes_per_second=50 * GIGA,
        ),
    )
}


def device_named(name: str) -> Device:
    """Return a device of the table.

    Raises:
        SpecError: The table does not have it.
    """
    if name in DEVICES:
        return DEVICES[name]
    lower = {known.lower(): known for known in DEVICES}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    guess = f"did you mean `{lower[close[0]]}`? " if close else ""
    raise SpecError(
        f"unknown device `{name}`",
        where="resources.device",
        hint=f"{guess}known are: {', '.join(DEVICES)}",
    )


def device_memory_bytes(name: str) -> int:
    """Return the memory of a device of the table.

    Raises:
        SpecError: The table does not have it, or it is `cpu`, whose memory is the machine's.
    """
    device = device_named(name)
    if not device.memory_bytes:
        raise SpecError(
            f"the memory of a `{name}` machine is not known",
            where="resources.device_memory",
            hint="set it, for instance `resources.device_memory: 64 GiB`",
        )
    return device.memory_bytes


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

    def usable_bytes(self, ranks: int) -> int:
        """Memory that a plan may fill; the rest is lost to gaps between the allocator's blocks."""
        return int(self.fleet.rank_memory_bytes(ranks) * USABLE)

    def link(self, span: int) -> float:
        """Bytes a second between members of a group that covers `span` consecutive ranks."""
        if span <= self.per_node:
            return self.device.node_bytes_per_second
        return self.device.network_bytes_per_second


USABLE = 0.95
