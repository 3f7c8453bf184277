"""`ai-cli runs`: show, compare, export, import and remove the records of runs."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cnai.compress.formats.crc32c import crc32c, masked
from cnai.core.errors import DataError, RunError, SpecError
from cnai.core.events import Finding, Reacted
from cnai.core.files import saving, write_atomically
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.runs import RunState, run_state
from cnai.monitor.series import RunTable, csv_of, table_of, table_of_csv, write_run
from cnai.monitor.tensorboard import files_of, table_of_tensorboard, tensorboard_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRow:
    """One recorded number over a run.

    Attributes:
        points: Steps that have it.
        last: Its last value that is finite; None when there is none.
    """

    name: str
    points: int
    first: float | None
    least: float | None
    most: float | None
    last: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A run, its findings, what it did about them by itself, and what is recorded of it."""

    state: RunState
    findings: tuple[Finding, ...]
    reactions: tuple[Reacted, ...]
    series: tuple[SeriesRow, ...]


def show_run(folder: Path, *, layers: bool = False) -> RunPage:
    """Return what is recorded of a run.

    Raises:
        DataError: There is no run.
    """
    run = RunFolder.existing(folder)
    table = table_of(run, layers=layers)
    events = read_events(run)
    findings = tuple(one for one in events if isinstance(one, Finding))
    reactions = tuple(one for one in events if isinstance(one, Reacted))
    rows = tuple(_row(name, values) for name, values in table.columns.items())
    return RunPage(state=run_state(run), findings=findings, reactions=reactions, series=rows)


def compare_runs(
    folders: list[Path], *, layers: bool = False
) -> dict[str, dict[str, float | None]]:
    """Return the last value of every number by its name and by run."""
    last: dict[str, dict[str, float | None]] = {}
    for folder in folders:
        for row in show_run(folder, layers=layers).series:
            last.setdefault(row.name, {})[str(folder)] = row.last
    return last


def export_run(folder: Path, output: Path, kind: str, *, layers: bool = True) -> RunTable:
    """Write the record of a run as a file that other programs read.

    Raises:
        DataError: There is no run.
        RunError: The file cannot be written.
    """
    table = table_of(RunFolder.existing(folder), layers=layers)
    if kind == "csv":
        write_atomically(output, csv_of(table).encode())
    elif kind == "tensorboard":
        content = tensorboard_of(table, _checksum, time_unix=time.time())
        write_atomically(output / f"events.out.tfevents.{int(time.time())}.cnai", content)
    else:
        _write_parquet(table, output)
    return table


def import_run(source: Path, folder: Path) -> RunTable:
    """Make a run folder out of a file or folder that another program wrote.

    Raises:
        DataError: It cannot be read.
        RunError: There is something at `folder` already.
    """
    if folder.exists():
        raise RunError(
            f"`{folder}` is there already",
            where=str(folder),
            hint="name a folder that is not there yet",
        )
    table = _read(source)
    write_run(table, folder)
    return table


def remove_run(folder: Path) -> None:
    """Remove a run and all that is in it.

    Raises:
        DataError: There is no run.
        RunError: A process works on it, or it cannot be removed.
    """
    run = RunFolder.existing(folder)
    owner = run.owner()
    if owner is not None:
        raise RunError(
            f"run `{run.name}` is in use by process {owner}",
            where=str(folder),
            hint=f"stop it first with `ai-cli stop {folder}`",
        )
    with saving(folder):
        shutil.rmtree(folder)


def _checksum(content: bytes) -> int:
    return masked(crc32c(content))


def _read(source: Path) -> RunTable:
    hint = "name a .csv or .parquet file, or a TensorBoard event file or folder"
    if not source.exists():
        raise DataError(f"no file `{source}`", where=str(source), hint=hint)
    try:
        if source.suffix == ".csv":
            return table_of_csv(source.read_text(), where=str(source))
        if source.suffix == ".parquet":
            return _read_parquet(source)
        files = files_of(source)
        if not files:
            raise DataError("no event files in it", where=str(source), hint=hint)
        return table_of_tensorboard(b"".join(one.read_bytes() for one in files), where=str(source))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read it: {error}", where=str(source), hint=hint) from error


def _write_parquet(table: RunTable, output: Path) -> None:
    columns = {"step": table.steps, **table.columns}
    with saving(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f".{output.name}.{os.getpid()}")
        parquet.write_table(pa.table(columns), partial)
        partial.replace(output)


def _read_parquet(source: Path) -> RunTable:
    try:
        table = parquet.read_table(source)
    except pa.ArrowException as error:
        raise DataError(
            f"not a Parquet file: {error}", where=str(source), hint="name a table with a `step`"
        ) from error
    if "step" not in table.column_names:
        raise DataError("no column `step`", where=str(source), hint="name the column of steps so")
    columns = {
        name: table[name].to_numpy().astype(np.float64)
        for name in table.column_names
        if name != "step"
    }
    return RunTable(table["step"].to_numpy().astype(np.int64), columns)


def _row(name: str, values: np.ndarray) -> SeriesRow:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return SeriesRow(name=name, points=0, first=None, least=None, most=None, last=None)
    return SeriesRow(
        name=name,
        points=len(finite),
        first=float(finite[0]),
        least=float(finite.min()),
        most=float(finite.max()),
        last=float(finite[-1]),
    )


def format_of(output: Path, asked: str | None) -> str:
    """Return the format that was asked for, or that of the file's name.

    Raises:
        SpecError: The name says nothing.
    """
    known = {".csv": "csv", ".parquet": "parquet"}.get(output.suffix)
    kind = asked or known or ("tensorboard" if not output.suffix else None)
    if kind is None:
        raise SpecError(
            f"no format is known by `{output.suffix}`",
            where="--output",
            hint="name it with `--to csv`, `--to parquet` or `--to tensorboard`",
        )
    return kind
