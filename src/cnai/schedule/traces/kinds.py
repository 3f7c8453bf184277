"""Which reader a trace or a cluster needs: told by its words, or by the head of its table."""

from __future__ import annotations

import re
from pathlib import Path

from cnai.core.errors import DataError, SpecError
from cnai.schedule.nodes import NodeRow
from cnai.schedule.simulation.engine import SimulatedJob
from cnai.schedule.traces import elasticflow, openb, philly
from cnai.schedule.traces.synthetic import make_jobs, make_nodes
from cnai.schedule.traces.table import records

DEFAULT_JOBS = 1000
_LARGEST = 1_000_000


def read_cluster(words: str) -> list[NodeRow]:
    """Read `64`, `8x8` or the path of a table of nodes.

    Raises:
        SpecError: It is none of these.
        DataError: The table cannot be read.
    """
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", words.strip())
    if match is None:
        if not Path(words).is_file():
            raise SpecError(
                f"`{words}` is no cluster",
                where="--cluster",
                hint="write a number of GPUs, nodes x GPUs such as 16x8, or the path of a table",
            )
        return openb.read_nodes(Path(words))
    first, second = int(match[1]), int(match[2] or 0)
    gpus = first * second if match[2] else first
    if not 0 < gpus <= _LARGEST:
        raise SpecError(
            f"a cluster of {gpus} GPUs cannot be simulated",
            where="--cluster",
            hint=f"use from 1 to {_LARGEST:,} GPUs",
        )
    return make_nodes(gpus, per_node=second or min(8, gpus))


def read_trace(
    words: str,
    *,
    gpus: int,
    curves: Path | None = None,
    days: tuple[str | None, str | None] = (None, None),
    seed: int = 0,
) -> list[SimulatedJob]:
    """Read `synthetic`, `synthetic:5000` or the path of a table of jobs.

    Args:
        words: As the user wrote it.
        gpus: GPUs of the cluster.
        curves: Folder of scaling curves, for elastic traces.
        days: First and last day, for traces with dates.
        seed: Of made-up jobs.

    Raises:
        SpecError: It is neither, or curves are missing.
        DataError: The table cannot be read, or is of no known kind.
    """
    match = re.fullmatch(r"synthetic(?::(\d+))?", words.strip())
    if match:
        count = int(match[1] or DEFAULT_JOBS)
        if not 0 < count <= _LARGEST:
            raise SpecError(
                f"{count} jobs cannot be made", where="--trace", hint=f"make 1 to {_LARGEST:,}"
            )
        return make_jobs(count, gpus, seed=seed)
    path = Path(words)
    if not path.is_file():
        raise SpecError(
            f"`{words}` is no trace",
            where="--trace",
            hint="write `synthetic`, `synthetic:5000`, or the path of a table of jobs",
        )
    head = set(next(iter(records(path))).values)
    if {"timestamp", "duration", "num_gpus"} <= head:
        return philly.read_jobs(path, start=days[0], end=days[1])
    if {"model_name", "iteration"} <= head:
        if curves is None:
            raise SpecError(
                f"`{path.name}` holds elastic jobs, whose curves are not given",
                where="--curves",
                hint="name the folder with a table of speeds a model",
            )
        read = elasticflow.read_curves(curves)
        return elasticflow.read_jobs(path, read, speedup=1.0, most=gpus, elastic=True)
    if {"creation_time", "deletion_time", "num_gpu"} <= head:
        return openb.read_pod_jobs(path)
    raise DataError(
        f"`{path.name}` is a table of no known kind",
        where=str(path),
        hint="known are `timestamp, duration, num_gpus`; `submit_time, model_name, batch_size, "
        "num_gpu, iteration`; and `creation_time, deletion_time, num_gpu, gpu_milli, cpu_milli`",
    )
