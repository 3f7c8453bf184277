"""Fit the constants that are shipped, and say what they are worth on rows they did not see.

    python benchmarks/plan_fit.py --rows FILE --write
    python benchmarks/plan_fit.py --rows FILE --held-out size

Datasheet constants (table `constants` of a device's file) see every source but the multi-node runs
of vTrain, on which their error is that of a new cluster. Those in table `calibrated` see all.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from plan_measures import family, fitted, measured_seconds, seconds_of
from plan_rows import Row, read_rows

from cnai.plan.constants import Constants
from cnai.plan.devices import hardware_folder

HELD = "ground_truth_multi"
ALIKE = {
    "A100": ("A100-40GB", "A100-80GB"), "V100": ("V100-16GB", "V100-32GB"),
    "H100-80GB": ("H100-80GB", "H800-80GB", "H200-141GB"), "B200": ("B200", "B300"),
}  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="write the constants that are shipped")
    parser.add_argument("--held-out", choices=("source", "size"), help="leave one out at a time")
    parser.add_argument("--kind", help="only this family of devices")
    asked = parser.parse_args()
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in read_rows(asked.rows):
        if isinstance(row, Row) and measured_seconds(row):
            groups[family(row.kind)].append(row)
    for name, rows in groups.items():
        if asked.kind not in (None, name):
            continue
        if asked.held_out:
            held_out(name, rows, asked.held_out)
        else:
            fit_family(name, rows, write=asked.write)


def fit_family(name: str, rows: Sequence[Row], *, write: bool) -> None:
    """Fit one family both ways."""
    plain = fitted([row for row in rows if HELD not in row.source], Constants())
    everything = fitted(rows, plain, rounds=6) if any(HELD in row.source for row in rows) else plain
    print(name, len(rows), "rows:", f"{error(rows, everything):.1f} %", plain, flush=True)
    if write:
        for kind in ALIKE.get(name, (name,)):
            write_constants(hardware_folder() / f"{kind.lower()}.toml", "constants", plain)
            if everything != plain:
                write_constants(
                    hardware_folder() / f"{kind.lower()}.toml", "calibrated", everything
                )


def write_constants(path: Path, table: str, constants: Constants) -> None:
    """Replace a table of numbers at the end of a device's file."""
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(f"\n[{table}]\n")
    tail = rest[rest.index("\n[") :] if "\n[" in rest else ""
    lines = "".join(f"{name} = {value:.4g}\n" for name, value in asdict(constants).items())
    path.write_text(f"{head}\n[{table}]\n{lines}{tail}", encoding="utf-8")


def held_out(name: str, rows: Sequence[Row], by: str) -> None:
    """Print the error on each source, or size of model, with constants that did not see it."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        key = row.source[:60]
        if by == "size":
            key = f"{row.shape.parameters / 1e9:.0f}B"
        parts[key].append(row)
    if len(parts) < 2:
        return
    start = fitted(rows, Constants(), rounds=6)
    for key, part in parts.items():
        if len(part) < 4:
            continue
        rest = [row for row in rows if row not in part]
        found = fitted(rest, start, rounds=4)
        print(f"{name:10s} {len(part):4d} rows {error(part, found):6.1f} %  {key}", flush=True)


def error(rows: Sequence[Row], constants: Constants) -> float:
    """Return the mean error of the step time, in percent."""
    return 100 * statistics.mean(
        abs(seconds_of(row, constants) / (measured_seconds(row) or 1.0) - 1) for row in rows
    )


if __name__ == "__main__":
    main()
