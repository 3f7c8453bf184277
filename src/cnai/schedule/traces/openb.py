"""The openb trace of GPU sharing (Alibaba clusterdata v2023): nodes and pods."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cnai.schedule.demand import WHOLE, Demand
from cnai.schedule.jobs import JobRow
from cnai.schedule.nodes import NodeRow
from cnai.schedule.simulation.engine import SimulatedJob, SimulatedPhase
from cnai.schedule.traces.table import Record, records


def read_nodes(path: Path) -> list[NodeRow]:
    """Read `sn, cpu_milli, memory_mib, gpu, model`.

    Raises:
        DataError: The table is not of this kind.
    """
    return [
        NodeRow(
            name=line.text("sn", "name"),
            cpu_milli=int(line.number("cpu_milli")),
            memory_mib=int(line.number("memory_mib")),
            gpus=int(line.number("gpu", "gpus", default=0)),
            model=line.text("model", default=""),
        )
        for line in records(path)
    ]


def read_pods(path: Path) -> list[Demand]:
    """Read `cpu_milli, memory_mib, num_gpu, gpu_milli` and, where there, `gpu_spec` (A|B).

    Raises:
        DataError: The table is not of this kind.
    """
    return [_demand(line) for line in records(path)]


def _demand(line: Record) -> Demand:
    gpus = int(line.number("num_gpu"))
    milli = int(line.number("gpu_milli", default=WHOLE)) or WHOLE
    models = [model for model in line.text("gpu_spec", default="").split("|") if model]
    return Demand(
        cpu_milli=int(line.number("cpu_milli")),
        memory_mib=int(line.number("memory_mib", default=0)),
        gpus=gpus,
        gpu_milli=min(milli, WHOLE) if gpus == 1 else WHOLE,
        models=tuple(sorted(models)),
    )


def arrivals(
    pods: list[Demand], capacity_milli: int, *, seed: int, load: float = 1.3
) -> list[Demand]:
    """Return the pods in a chance order, with more of them drawn until they ask for the load.

    Args:
        pods: The trace.
        capacity_milli: Thousandths of GPUs of the cluster.
        seed: Of the order and of the draws.
        load: GPUs asked for over GPUs there.
    """
    random = np.random.default_rng(seed)
    coming = [pods[place] for place in random.permutation(len(pods))]
    asked = sum(pod.total_milli for pod in coming)
    if not asked:
        return coming
    while asked < load * capacity_milli:
        pod = pods[int(random.integers(len(pods)))]
        coming.append(pod)
        asked += pod.total_milli
    return coming


def read_pod_jobs(path: Path) -> list[SimulatedJob]:
    """Read pods with `creation_time` and `deletion_time` as jobs of one worker.

    Raises:
        DataError: The table is not of this kind.
    """
    jobs = []
    for place, line in enumerate(records(path)):
        arrives = line.seconds("creation_time")
        began = line.number("scheduled_time", default=arrives)
        seconds = line.seconds("deletion_time") - max(arrives, began)
        if seconds <= 0:
            continue
        name = line.text("name", default=f"pod-{place}")
        row = JobRow(name=name, demand=_demand(line), arrived=arrives, oracle_seconds=seconds)
        phase = SimulatedPhase(row=row, seconds=seconds)
        jobs.append(SimulatedJob(name=name, arrives=arrives, phases=(phase,)))
    return jobs
