"""Elastic jobs with measured scaling curves, as in the artifact of ElasticFlow."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.schedule.demand import Demand
from cnai.schedule.goodput import Curve, curve_of
from cnai.schedule.jobs import JobRow
from cnai.schedule.simulation.engine import SimulatedJob, SimulatedPhase
from cnai.schedule.traces.table import records

Curves = dict[tuple[str, int], Curve]


def read_curves(folder: Path) -> Curves:
    """Read a table a model, `global_batch_size, 1, 2, 4, ...`, with iterations a second.

    Raises:
        DataError: There is no table, or one is not of this kind.
    """
    curves: Curves = {}
    for path in sorted(folder.glob("*.csv")):
        for line in records(path):
            sizes = [name for name in line.values if name.strip().isdigit()]
            speeds = {int(size): line.number(size, default=0.0) for size in sizes}
            curves[path.stem, int(line.number("global_batch_size", "batch_size"))] = curve_of(
                speeds
            )
    if not curves:
        raise DataError(
            f"no curves in `{folder}`", where=str(folder), hint="name a folder with a CSV a model"
        )
    return curves


def read_jobs(
    path: Path, curves: Curves, *, speedup: float, most: int, elastic: bool
) -> list[SimulatedJob]:
    """Read `submit_time, model_name, batch_size, num_gpu, iteration`.

    Args:
        path: The table.
        curves: Of `read_curves`.
        speedup: How much faster jobs arrive than they did.
        most: Largest number of GPUs that a job may get.
        elastic: Whether sizes may change; else a job keeps what it asked for.

    Raises:
        DataError: The table is not of this kind, or a job has no curve.
    """
    jobs = []
    for place, line in enumerate(records(path)):
        key = line.text("model_name", "application"), int(line.number("batch_size"))
        if key not in curves:
            raise DataError(
                f"no curve for `{key[0]}` with batch {key[1]}",
                where=line.where,
                hint=f"add the batch to `{key[0]}.csv`, or leave out the job",
            )
        curve = curves[key]
        asked = int(line.number("num_gpu", "num_gpus"))
        fitting = [size for size, _ in curve.speeds if size <= min(asked, most)]
        workers = max(fitting) if fitting else min(size for size, _ in curve.speeds)
        seconds = line.number("iteration", "iterations") / curve.speed(workers)
        if seconds <= 0:
            continue
        name = line.text("job_id", default=f"job-{place}")
        arrives = line.seconds("submit_time", "time") / speedup
        row = JobRow(
            name=name,
            demand=Demand(gpus=1),
            workers=workers,
            least=1 if elastic else None,
            most=most if elastic else None,
            arrived=arrives,
            group=key[0],
            curve=curve,
            declared_seconds=seconds,
            oracle_seconds=seconds,
        )
        phase = SimulatedPhase(row=row, seconds=seconds)
        jobs.append(SimulatedJob(name=name, arrives=arrives, phases=(phase,)))
    return jobs
