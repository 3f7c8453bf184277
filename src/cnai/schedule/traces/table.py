"""Tables of traces, read so that a wrong file is told by its column and line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cnai.core.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a table."""

    values: Mapping[str, str]
    where: str

    def text(self, *names: str, default: str | None = None) -> str:
        """Return the value of the first column of these names that is there.

        Raises:
            DataError: None is, and there is no default.
        """
        for name in names:
            value = self.values.get(name)
            if value is not None and value.strip():
                return value.strip()
        if default is not None:
            return default
        raise DataError(
            f"no value in column `{names[0]}`",
            where=self.where,
            hint=f"the table needs `{names[0]}`; it has {', '.join(self.values)}",
        )

    def number(self, *names: str, default: float | None = None) -> float:
        """Return the value of a column as a finite number.

        Raises:
            DataError: It is missing, or no number.
        """
        text = self.text(*names, default=None if default is None else str(default))
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not abs(number) < float("inf"):
            raise DataError(
                f"`{text}` in column `{names[0]}` is no number",
                where=self.where,
                hint="mend or leave out this line",
            )
        return number

    def seconds(self, *names: str) -> float:
        """Return a column as seconds: a number, or a date as seconds since the epoch (UTC).

        Raises:
            DataError: It is neither.
        """
        text = self.text(*names)
        try:
            return float(text)
        except ValueError:
            pass
        return moment(text, where=self.where)


def moment(text: str, *, where: str) -> float:
    """Return a date as seconds since the epoch; without a zone it is UTC.

    Raises:
        DataError: It is no date.
    """
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError as error:
        raise DataError(
            f"`{text}` is no date",
            where=where,
            hint="write it as 2017-10-09 or 2017-10-09 06:13:03",
        ) from error
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def records(path: Path) -> Iterator[Record]:
    """Yield the lines of a CSV table with a head.

    Raises:
        DataError: The file cannot be read, is no text or has no lines.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            count = 0
            for count, values in enumerate(csv.DictReader(file), 1):
                known = {key: value or "" for key, value in values.items() if key is not None}
                yield Record(known, f"{path}:{count + 1}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"cannot read `{path}`: {error}", where=str(path), hint="name a CSV table with a head"
        ) from error
    if not count:
        raise DataError(
            f"`{path}` has no lines", where=str(path), hint="name a table with a head and lines"
        )
