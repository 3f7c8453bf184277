"""Predict rows of training throughput with the planner's own model of cost and memory.

    python benchmarks/plan.py --rows FILE --predictions OUT.jsonl [--mode datasheet|calibrated]

The file has the columns of published measurements; measured ones may be blank. `datasheet` uses
the constants that are shipped with each device. `calibrated` fits them to the measured rows of the
same kind of device, five times, each time predicting the fifth that was left out; without measured
rows it uses the constants calibrated before, which are shipped, and says so. One JSON line a row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from plan_measures import family, fitted, flops_of, measured_seconds, seconds_of, tokens_of
from plan_memory import memory_of
from plan_rows import Row, Skipped, read_rows

from cnai.plan.constants import Constants

FOLDS = 5
FEWEST = 10


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--mode", choices=("datasheet", "calibrated"), default="datasheet")
    asked = parser.parse_args()
    started = time.perf_counter()
    rows = read_rows(asked.rows)
    known = [row for row in rows if isinstance(row, Row)]
    constants = calibrated(known) if asked.mode == "calibrated" else {}
    with asked.predictions.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(line_of(row, constants)) + "\n")
    seconds = time.perf_counter() - started
    print(
        f"{len(known)} of {len(rows)} rows predicted in {seconds:.1f} s ({asked.mode})",
        file=sys.stderr,
    )


def line_of(row: Row | Skipped, constants: Mapping[int, Constants]) -> dict[str, object]:
    """Return the line of a row."""
    line: dict[str, object] = {
        "row": row.index, "step_time_s": None, "tflops_per_gpu": None,
        "tokens_per_s_per_gpu": None, "memory_gb": None, "fits": None, "skipped": None,
    }  # fmt: skip
    if isinstance(row, Skipped):
        return {**line, "skipped": row.reason}
    seconds = seconds_of(row, constants.get(row.index))
    memory = memory_of(row)
    return {
        **line,
        "step_time_s": seconds,
        "tflops_per_gpu": flops_of(row) / seconds / 1e12,
        "tokens_per_s_per_gpu": tokens_of(row) / seconds / row.trial.layout.ranks,
        "memory_gb": memory.gib,
        "fits": memory.fits,
        "oom_probability": memory.oom_probability,
        "assumed": list(row.assumed),
    }


def calibrated(rows: Sequence[Row]) -> dict[int, Constants]:
    """Return the constants for each row, fitted to rows of its kind but not to it."""
    groups: dict[str, list[Row]] = defaultdict(list)
    found: dict[int, Constants] = {}
    for row in rows:
        groups[family(row.kind)].append(row)
    for name, members in groups.items():
        device = members[0].machines.device
        seen = [row for row in members if measured_seconds(row)]
        shipped = device.calibrated or device.constants
        if len(seen) < FEWEST:
            print(f"{name}: {len(seen)} measured rows, using the constants calibrated before",
                  file=sys.stderr)  # fmt: skip
            found |= {row.index: shipped for row in members}
            continue
        for fold in range(FOLDS):
            rest = [row for place, row in enumerate(seen) if place % FOLDS != fold]
            constants = fitted(rest, device.constants, rounds=4)
            found |= {row.index: constants for row in seen[fold::FOLDS]}
        found |= {row.index: shipped for row in members if row.index not in found}
    return found


if __name__ == "__main__":
    main()
