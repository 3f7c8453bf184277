"""What a data sheet does not say: the share of each peak that programs reach, and fixed times.

One record a kind of device. The same numbers serve the planner, the dry run and the benchmark;
`calibrate` moves them towards what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Efficiencies and fixed times of one kind of device.

    Attributes:
        matmul: Share of the peak that an endless matrix product reaches.
        narrow: The same for products in 8 or 4 bits, of their peak.
        half_size: Size of a product's side at which a third of the rate is lost to that side.
        attention: Share of the peak that fused attention reaches.
        memory: Share of the memory's rate that element-wise kernels reach.
        kernel_seconds: Time in which the host starts one kernel.
        node: Share of the link in a node that a collective reaches.
        node_latency: Seconds of an empty collective in a node.
        network: Share of the network's rate that a collective between nodes reaches.
        network_latency: Seconds of an empty message between nodes.
        send_seconds: Time in which both ends of a pipeline's border agree on a message.
        overlap: Share of the communication a program hides behind computing that is hidden.
        step_seconds: What a step takes beside all that: reading, logging, the optimizer's kernels.
        spread: Slowing by waiting for the slowest of many, for each doubling of the nodes.
    """

    matmul: float = 0.75
    narrow: float = 0.60
    half_size: float = 128.0
    attention: float = 0.6
    memory: float = 0.75
    kernel_seconds: float = 6e-6
    node: float = 0.70
    node_latency: float = 20e-6
    network: float = 0.75
    network_latency: float = 20e-6
    send_seconds: float = 100e-6
    overlap: float = 0.7
    step_seconds: float = 0.02
    spread: float = 0.004

    def changed(self, values: dict[str, float]) -> Constants:
        """Return these with some of them replaced."""
        return replace(self, **values)


NAMES = tuple(field.name for field in fields(Constants))
