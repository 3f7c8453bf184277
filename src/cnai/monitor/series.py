"""A run as a table: a row a step, a column for every number that was recorded.

Numbers of the whole run have plain names (`loss`); those of a layer are `GROUP/NAME`, such as
`gradient/layers.0.ffn.up_proj.weight`.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cnai.core.errors import DataError
from cnai.core.events import AttemptStarted, EvaluationDone, Event, RunEnded, StepDone
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.vectors import Columns, LayersMeasured, VectorWriter, read_vectors

Numbers = npt.NDArray[np.float64]

SCALARS = (
    "loss", "grad_norm", "update_ratio", "learning_rate", "tokens", "step_seconds",
    "data_wait_seconds", "noise_scale",
)  # fmt: skip
_WANTED = {"loss": math.nan, "grad_norm": math.nan, "learning_rate": math.nan}
_IMPORTED = "series"


@dataclass(frozen=True, slots=True)
class RunTable:
    """A run as columns over its steps; NaN where a step has no value."""

    steps: npt.NDArray[np.int64]
    columns: dict[str, Numbers]


def table_of(run: RunFolder, *, layers: bool = True) -> RunTable:
    """Read a run; of a step that was repeated the last time counts.

    Args:
        layers: Whether the layers are read too, which may be many columns.
    """
    events = read_events(run)
    rows = _rows(events)
    records = read_vectors(run.layers_file) if layers else []
    numbers = sorted({*rows, *(one.step for one in records)})
    place = {step: row for row, step in enumerate(numbers)}
    columns: dict[str, Numbers] = {}
    for step, row in rows.items():
        for name, value in row.items():
            _put(columns, name, place[step], value, len(numbers))
    _add_layers(columns, records, place)
    present = {name: one for name, one in columns.items() if not np.isnan(one).all()}
    return RunTable(np.array(numbers, dtype=np.int64), present)


def _rows(events: Iterable[Event]) -> dict[int, dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    newest: dict[int, int] = {}
    for event in events:
        if isinstance(event, StepDone) and event.attempt > newest.get(event.step, -1):
            newest[event.step] = event.attempt
            values = ((name, getattr(event, name)) for name in SCALARS)
            row = {name: float(one) for name, one in values if one is not None}
            rows.setdefault(event.step, {}).update(row)
        elif isinstance(event, EvaluationDone):
            rows.setdefault(event.step, {})["validation_loss"] = event.loss
    return rows


def _put(columns: dict[str, Numbers], name: str, row: int, value: float, length: int) -> None:
    if name not in columns:
        columns[name] = np.full(length, np.nan)
    columns[name][row] = value


def _add_layers(
    columns: dict[str, Numbers], records: list[LayersMeasured], place: dict[int, int]
) -> None:
    names: dict[Columns, list[str]] = {}
    for record in records:
        known = names.get(record.columns)
        if known is None:
            known = names[record.columns] = [
                name if group == _IMPORTED else f"{group}/{name}"
                for group, members in record.columns.groups
                for name in members
            ]
        for name, value in zip(known, record.values.tolist(), strict=True):
            _put(columns, name, place[record.step], value, len(place))


def csv_of(table: RunTable) -> str:
    """Return a table as CSV; a value that is not there is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *table.columns])
    columns = [one.tolist() for one in table.columns.values()]
    for row, step in enumerate(table.steps.tolist()):
        values = (one[row] for one in columns)
        writer.writerow([step, *("" if math.isnan(one) else repr(one) for one in values)])
    return text.getvalue()


def table_of_csv(text: str, *, where: str) -> RunTable:
    """Read a CSV whose first column is `step`.

    Raises:
        DataError: It is none.
    """
    rows = list(csv.reader(io.StringIO(text)))
    hint = "the first line is `step,NAME,...`, each other line a step and numbers"
    if not rows or not rows[0] or rows[0][0] != "step":
        raise DataError("the first column is not `step`", where=where, hint=hint)
    try:
        steps = np.array([int(row[0]) for row in rows[1:]], dtype=np.int64)
        columns = {
            name: np.array([float(row[at] or "nan") for row in rows[1:]])
            for at, name in enumerate(rows[0][1:], start=1)
        }
    except (ValueError, IndexError) as error:
        raise DataError(f"not a table of numbers: {error}", where=where, hint=hint) from error
    return RunTable(steps, columns)


def write_run(table: RunTable, folder: Path) -> RunFolder:
    """Make a run folder out of a table.

    Raises:
        RunError: The folder cannot be written.
    """
    run = RunFolder.create(folder)
    now = time.time()
    plain = {name: table.columns[name] for name in SCALARS if name in table.columns}
    rest = {name: one for name, one in table.columns.items() if name not in SCALARS}
    with run.writer("import") as writer:
        writer.write(_beginning(table, now))
        for row, step in enumerate(table.steps.tolist()):
            values: dict[str, Any] = {**_WANTED, "update_ratio": None, "tokens": 0}
            values |= {name: float(one[row]) for name, one in plain.items()}
            values = {
                name: None if name in {"update_ratio", "noise_scale"} and _is_nan(one) else one
                for name, one in values.items()
            }
            values["tokens"] = int(np.nan_to_num(values["tokens"]))
            writer.write(
                StepDone(
                    **{"step_seconds": 0.0, "data_wait_seconds": 0.0, **values},
                    time_unix=now,
                    rank=0,
                    attempt=0,
                    step=step,
                )
            )
        last = int(table.steps[-1]) if len(table.steps) else 0
        writer.write(RunEnded(time_unix=now, outcome="done", step=last, seconds=0.0))
    if rest:
        _write_layers(run, table, rest, now)
    return run


def _beginning(table: RunTable, now: float) -> AttemptStarted:
    return AttemptStarted(
        time_unix=now, attempt=0, ranks=1, steps=int(max(table.steps, default=0)), plan_digest="",
        layout="imported", resumed_step=0,
    )  # fmt: skip


def _write_layers(run: RunFolder, table: RunTable, rest: dict[str, Numbers], now: float) -> None:
    groups: dict[str, list[str]] = {}
    for name in rest:
        group, slash, member = name.partition("/")
        groups.setdefault(group if slash else _IMPORTED, []).append(member if slash else name)
    columns = Columns(tuple((group, tuple(members)) for group, members in groups.items()))
    order = [
        name if group == _IMPORTED else f"{group}/{name}"
        for group, members in columns.groups
        for name in members
    ]
    values = np.stack([rest[name] for name in order], axis=1).astype(np.float32)
    writer = VectorWriter(run.layers_file)
    for row, step in enumerate(table.steps.tolist()):
        writer.write(
            LayersMeasured(time_unix=now, attempt=0, step=step, columns=columns, values=values[row])
        )
    writer.close()


def _is_nan(value: float | None) -> bool:
    return value is None or math.isnan(value)
