"""The load of a service over time, as in the ServeGen tables."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.schedule.traces.table import records


def read_rates(path: Path) -> tuple[list[float], list[float]]:
    """Read `t_s, req_per_s` and return moments and rates.

    Raises:
        DataError: The table is not of this kind, or too short to be a load.
    """
    times: list[float] = []
    rates: list[float] = []
    for line in records(path):
        time = line.seconds("t_s", "timestamp", "time")
        if times and time <= times[-1]:
            raise DataError(
                f"the moment {time:g} comes after {times[-1]:g}",
                where=line.where,
                hint="sort the table by time",
            )
        times.append(time)
        rates.append(max(0.0, line.number("req_per_s", "rate", "rps")))
    if len(times) < 2 or sum(rates) <= 0:
        raise DataError(
            f"`{path.name}` holds no load",
            where=str(path),
            hint="name a table with two rates or more",
        )
    return times, rates
