"""Shapes, fleets and requests that the planner's tests share."""

from __future__ import annotations

from dataclasses import replace

from cnai.core.fleet import Fleet, Node
from cnai.core.shape import DecoderShape
from cnai.plan import DEVICES, PlanRequest

GIB = 2**30

SMALL = DecoderShape(layers=8, width=64, heads=8, kv_heads=4, ffn_width=192, vocab=512, sequence=32)
MIXTURE = replace(
    SMALL, qk_norm=True, experts=8, experts_per_token=2, expert_width=48, sparse_step=2
)
QWEN3_235B = DecoderShape(
    layers=94, width=4096, heads=64, kv_heads=4, head_size=128, ffn_width=12288, vocab=151936,
    sequence=4096, qk_norm=True, experts=128, experts_per_token=8, expert_width=1536,
)  # fmt: skip
LARGE = DecoderShape(
    layers=80, width=10240, heads=80, kv_heads=8, ffn_width=28672, vocab=128256, sequence=4096
)


def fleet(nodes: int = 1, *, kind: str = "H100-80GB", devices: int = 8, gib: int = 16) -> Fleet:
    """Return equal machines; `gib` counts for CPU machines only."""
    memory = DEVICES[kind].memory_bytes or gib * GIB
    return Fleet(
        nodes=tuple(
            Node(
                name=f"node-{index}",
                cpus=8,
                memory_bytes=gib * GIB,
                device_kind=kind,
                devices=devices,
                device_memory_bytes=memory,
            )
            for index in range(nodes)
        )
    )


def small(**changes: object) -> PlanRequest:
    """Return a request for the small shape."""
    return replace(PlanRequest(shape=SMALL, batch=16, sequence=32), **changes)


def large(**changes: object) -> PlanRequest:
    """Return a request for the 100 B shape."""
    base = PlanRequest(shape=LARGE, batch=1024, sequence=4096, precision="bfloat16", ranks=128)
    return replace(base, **changes)
