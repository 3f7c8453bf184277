"""The fleet that a spec counts on: this machine, or one described in `resources`."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from cnai.cluster import local_fleet
from cnai.core.errors import SpecError
from cnai.core.fleet import Fleet, Node
from cnai.core.spec import RunSpec
from cnai.core.units import parse_bytes
from cnai.plan import device_named

_HOST_MEMORY_BYTES = 1 << 40


def fleet_of(spec: RunSpec) -> Fleet:
    """Return the machines to plan for.

    On this machine any number of ranks may share the cores, which is slow but right; that is how a
    layout for many devices is tried on a laptop.

    Raises:
        SpecError: A device that is not in the table, without `device_memory`.
    """
    asked = spec.resources
    if asked.device == "auto" and asked.nodes == 1:
        (here,) = local_fleet().nodes
        memory = parse_bytes(asked.device_memory) if asked.device_memory else None
        return Fleet(
            nodes=(
                replace(
                    here,
                    devices=max(here.devices, asked_ranks(spec) or 1),
                    device_memory_bytes=memory or here.device_memory_bytes,
                ),
            )
        )
    if asked.device == "auto":
        raise SpecError(
            f"`auto` means this machine, but `resources.nodes` is {asked.nodes}",
            where="resources.device",
            hint="name the device of those nodes, for instance `H100-80GB`",
        )
    memory = (
        parse_bytes(asked.device_memory)
        if asked.device_memory
        else device_named(asked.device).memory_bytes
    )
    return Fleet(nodes=tuple(_node(spec, index, memory) for index in range(asked.nodes)))


def asked_ranks(spec: RunSpec) -> int | None:
    """Return the ranks that the spec asks for, None when it leaves them open."""
    parallel = spec.parallel
    sizes = (
        parallel.data_parallel.size,
        parallel.model_parallel.size,
        parallel.pipeline_parallel.stages,
    )
    if spec.resources.ranks is not None or all(size is None for size in sizes):
        return spec.resources.ranks
    product = 1
    for size in sizes:
        product *= size or 1
    context = parallel.context_parallel.size
    if parallel.data_parallel.size is None:
        context = lcm(context, parallel.expert_parallel.size)
    return product * context


def _node(spec: RunSpec, index: int, memory: int) -> Node:
    asked = spec.resources
    devices = asked.devices_per_node or -(-(asked_ranks(spec) or 1) // asked.nodes)
    return Node(
        name=f"node-{index}",
        cpus=devices,
        memory_bytes=_HOST_MEMORY_BYTES,
        device_kind=asked.device,
        devices=devices,
        device_memory_bytes=memory,
    )
