"""Made-up jobs, so that a cluster can be simulated without any trace."""

from __future__ import annotations

import numpy as np

from cnai.schedule.demand import Demand
from cnai.schedule.goodput import StepModel
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import NodeRow
from cnai.schedule.simulation.engine import SimulatedJob, SimulatedPhase

_SIZES = (1, 2, 4, 8, 16, 32)
_SIZE_SHARES = (0.55, 0.12, 0.13, 0.13, 0.05, 0.02)


def make_nodes(gpus: int, per_node: int = 8, price: int = 2_000_000) -> list[NodeRow]:
    """Make equal nodes, four in a rack; the last may be smaller.

    Args:
        gpus: GPUs of the cluster.
        per_node: GPUs of a node.
        price: Of a GPU-hour, in millionths of the currency.
    """
    counts = [per_node] * (gpus // per_node) + ([gpus % per_node] if gpus % per_node else [])
    return [
        NodeRow(
            name=f"node-{place}", cpu_milli=count * 16_000, memory_mib=count * 131_072, gpus=count,
            model="GPU", rack=f"rack-{place // 4}", micros_per_gpu_hour=price,
        )
        for place, count in enumerate(counts)
    ]  # fmt: skip


def make_jobs(
    count: int, gpus: int, *, seed: int, load: float = 1.0, elastic: float = 0.3
) -> list[SimulatedJob]:
    """Make jobs with the shape of real traces: many short and small, few long and large.

    Durations are lognormal (median 13 min, mean about 2.5 h) and arrivals a Poisson process with a
    day's swing.

    Args:
        count: Jobs.
        gpus: GPUs of the cluster; larger gangs are not made.
        seed: The same seed makes the same jobs.
        load: GPU time asked for over GPU time there, until the last arrival.
        elastic: Share of jobs that may be resized.
    """
    random = np.random.default_rng(seed)
    good = [place for place, size in enumerate(_SIZES) if size <= gpus]
    shares = np.array([_SIZE_SHARES[place] for place in good])
    sizes = random.choice([_SIZES[place] for place in good], size=count, p=shares / shares.sum())
    seconds = np.clip(random.lognormal(np.log(800), 2.2, size=count), 30, 14 * 86400)
    span = float((sizes * seconds).sum()) / (gpus * load)
    moments = np.sort(random.uniform(0, 1, size=count))
    day = 2 * np.pi * span / 86400
    moments = np.clip(moments - 0.25 * np.sin(day * moments) / max(day, 1e-9), 0, 1) * span
    may_change = random.uniform(size=count) < elastic
    return [
        _job(place, float(moments[place]), int(sizes[place]), float(seconds[place]), gpus,
             elastic=bool(may_change[place]))
        for place in np.argsort(moments, kind="stable").tolist()
    ]  # fmt: skip


def _job(
    place: int, arrives: float, size: int, seconds: float, gpus: int, *, elastic: bool
) -> SimulatedJob:
    most = min(4 * size, 2 ** int(np.log2(gpus)))
    model = StepModel(
        compute_seconds=0.02, row_seconds=0.01, sync_seconds=0.05, link_seconds=0.001, overlap=2.0,
        noise_scale=256, base_batch=64,
    )  # fmt: skip
    sizes = tuple(2**power for power in range(int(np.log2(most)) + 1))
    row = JobRow(
        name=f"job-{place}",
        demand=Demand(cpu_milli=4000, memory_mib=32_768, gpus=1),
        workers=size,
        least=max(1, size // 2) if elastic else None,
        most=most if elastic else None,
        arrived=arrives,
        queue=("research", "product")[place % 2],
        group=f"user-{place % 7}",
        curve=model.curve(sizes, (64, 128, 256)) if elastic else None,
        declared_seconds=seconds if elastic else float("nan"),
        oracle_seconds=seconds,
    )
    return SimulatedJob(
        name=row.name, arrives=arrives, phases=(SimulatedPhase(row=row, seconds=seconds),)
    )
