"""`ai-cli logs`: the ends of the logs of a run."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.core.runfolder import RunFolder

_LINE_BYTES = 400


def last_lines(run: RunFolder, *, rank: int | None, lines: int) -> dict[str, list[str]]:
    """Return the last lines of each log by its name, reading no more than is shown.

    Raises:
        DataError: The rank has no log.
    """
    files = sorted(run.logs.glob("*.log")) if rank is None else [run.rank_log(rank)]
    for file in files:
        if not file.is_file():
            raise DataError(
                f"rank {rank} of run `{run.name}` has no log",
                where=str(file),
                hint=f"list the logs with `ls {run.logs}`",
            )
    return {file.stem: tail(file, lines) for file in files}


def tail(file: Path, lines: int) -> list[str]:
    """Return the last lines of a text file, of which long ones may be cut at the front."""
    with file.open("rb") as handle:
        size = handle.seek(0, 2)
        handle.seek(max(0, size - lines * _LINE_BYTES))
        return handle.read().decode(errors="replace").splitlines()[-lines:]
