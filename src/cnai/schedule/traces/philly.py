"""Jobs with a moment, a duration and GPUs, as in the Philly trace of Microsoft."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.schedule.demand import Demand
from cnai.schedule.jobs import JobRow
from cnai.schedule.simulation.engine import SimulatedJob, SimulatedPhase
from cnai.schedule.traces.table import moment, records

DAY = 86400.0


def read_jobs(
    path: Path,
    *,
    start: str | None = None,
    end: str | None = None,
    cpu_share: float = 0.0,
    holds_gpus: bool = True,
) -> list[SimulatedJob]:
    """Read `timestamp, duration, num_gpus`, maybe `cluster`; jobs without GPU are left out.

    Args:
        path: The table.
        start: First day.
        end: Last day, which counts whole.
        cpu_share: Part of each job, at its beginning, that needs no GPU.
        holds_gpus: Whether the GPUs are held in that part too.

    Raises:
        DataError: The table is not of this kind, or no job lies in these days.
    """
    first = moment(start, where="--start") if start else -float("inf")
    last = moment(end, where="--end") if end else float("inf")
    last += DAY if end and len(end) <= len("2017-10-09") else 0.0
    found: list[tuple[float, float, int, str]] = []
    for line in records(path):
        when = line.seconds("timestamp", "submit_time")
        seconds, gpus = line.number("duration"), int(line.number("num_gpus", "num_gpu"))
        if first <= when < last and seconds > 0 and gpus > 0:
            found.append((when, seconds, gpus, line.text("cluster", "vc", default="")))
    if not found:
        raise DataError(
            f"no job of `{path.name}` lies between {start} and {end}",
            where=str(path),
            hint="choose other days, or leave `--start` and `--end` out",
        )
    found.sort()
    origin = moment(start, where="--start") if start else found[0][0]
    return [
        gang_job(f"job-{place}", when - origin, seconds, gpus, group,
                 cpu_share=0.0 if holds_gpus else cpu_share)
        for place, (when, seconds, gpus, group) in enumerate(found)
    ]  # fmt: skip


def gang_job(
    name: str, arrives: float, seconds: float, gpus: int, group: str, *, cpu_share: float = 0.0
) -> SimulatedJob:
    """Make a job of equal workers with a GPU each, maybe with a first phase that needs none."""
    steady = JobRow(
        name=name,
        demand=Demand(gpus=1),
        workers=gpus,
        arrived=arrives,
        queue=group,
        group=group,
        oracle_seconds=seconds * (1 - cpu_share),
    )
    phases = [SimulatedPhase(row=steady, seconds=seconds * (1 - cpu_share))]
    if cpu_share:
        ready = JobRow(
            name=name, demand=Demand(), workers=1, arrived=arrives, queue=group, group=group,
            phase="preprocess", oracle_seconds=seconds * cpu_share,
        )  # fmt: skip
        phases.insert(0, SimulatedPhase(row=ready, seconds=seconds * cpu_share))
    return SimulatedJob(name=name, arrives=arrives, phases=tuple(phases))
