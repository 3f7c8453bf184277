"""Score predictions of plan.py against the measured columns.

    python benchmarks/plan_score.py --rows FILE --predictions OUT.jsonl

Per source the mean and median error of the step's speed (its time, else tokens, else TFLOP/s, as
the source counts them) and of memory; how often running out of memory was foreseen; and what it
costs to trust the prediction when choosing among the measured layouts of a model. A skipped row
counts as a miss unless a column that it needs is blank.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPEEDS = (
    ("step_time_s", "step_time_s"),
    ("tokens_per_s_per_gpu", "tokens_per_s_per_gpu"),
    ("measured_tflops_per_gpu", "tflops_per_gpu"),
)
GROUP = ("source", "layers", "hidden", "seq_len", "n_gpus", "global_batch_seqs")
BLANK = re.compile("blank|says nothing|does not say|not training|unknown hardware")
WIDTH = 64


@dataclass
class Source:
    """What was found for one source."""

    speed: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    blank: int = 0
    missed: int = 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    with asked.rows.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in asked.predictions.read_text("utf-8").splitlines()]
    by_row = {line["row"]: line for line in lines}
    pairs = [(row, by_row[index]) for index, row in enumerate(rows) if index in by_row]
    sources = by_source(pairs)
    show_sources(sources)
    figures = {
        "memory_mape": mean([e for one in sources.values() for e in one.memory]),
        "oom": oom(pairs),
        "regret": regret(pairs),
        "speed_mape": {name: mean(one.speed) for name, one in sources.items() if one.speed},
        "missed": sum(one.missed for one in sources.values()),
    }
    print(f"memory: {figures['memory_mape']:.1f} % mean error")
    print("out of memory:", figures["oom"])
    print("regret of choosing by prediction, in percent:", figures["regret"])
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def number(text: str | None) -> float | None:
    """Return a cell as a number, None = blank."""
    found = re.search(r"\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?", text or "")
    return float(found.group().replace(",", "")) if found else None


def mean(errors: Sequence[float]) -> float:
    """Return the mean of errors without their signs, in percent."""
    return 100 * statistics.mean(map(abs, errors)) if errors else float("nan")


def speed_error(row: Mapping[str, str], line: Mapping[str, float | None]) -> float | None:
    """Return the error of the step's speed; None = nothing was measured.

    A rate's error is taken as that of the time that it means.
    """
    for column, name in SPEEDS:
        measured, predicted = number(row.get(column)), line.get(name)
        if measured and predicted:
            time = predicted / measured if column == "step_time_s" else measured / predicted
            return time - 1
    return None


def by_source(pairs: Sequence[tuple[dict[str, str], dict]]) -> dict[str, Source]:
    """Collect the errors of each source."""
    sources: dict[str, Source] = defaultdict(Source)
    for row, line in pairs:
        one = sources[row["source"]]
        measured = any(number(row.get(column)) for column, _ in SPEEDS)
        if line["skipped"]:
            one.blank += bool(BLANK.search(line["skipped"]))
            one.missed += not BLANK.search(line["skipped"])
            continue
        error = speed_error(row, line)
        if measured and error is not None:
            one.speed.append(error)
        memory = number(row.get("memory_gb"))
        if memory and line["memory_gb"]:
            one.memory.append(line["memory_gb"] / memory - 1)
    return sources


def show_sources(sources: Mapping[str, Source]) -> None:
    """Print the table."""
    print(f"{'source':{WIDTH}} {'rows':>5} {'mean %':>7} {'med. %':>7} {'bias %':>7} "
          f"{'mem %':>7} {'blank':>6} {'missed':>6}")  # fmt: skip
    everything: list[float] = []
    for name, one in sources.items():
        cells = ["", "", ""]
        if one.speed:
            everything += one.speed if "vTrain" not in name else []
            median = 100 * statistics.median(map(abs, one.speed))
            cells = [f"{mean(one.speed):.1f}", f"{median:.1f}",
                     f"{100 * statistics.mean(one.speed):+.1f}"]  # fmt: skip
        memory = f"{mean(one.memory):.1f}" if one.memory else ""
        print(f"{name[:WIDTH]:{WIDTH}} {len(one.speed):>5} {cells[0]:>7} {cells[1]:>7} "
              f"{cells[2]:>7} {memory:>7} {one.blank or '':>6} {one.missed or '':>6}")  # fmt: skip
    if everything:
        print(f"{'all but vTrain':{WIDTH}} {len(everything):>5} {mean(everything):>7.1f} "
              f"{100 * statistics.median(map(abs, everything)):>7.1f}")  # fmt: skip


def oom(pairs: Sequence[tuple[dict[str, str], dict]]) -> dict[str, object]:
    """Count how often running out of memory was foreseen."""
    said = [(row["oom"].strip().lower() == "true", not line["fits"])
            for row, line in pairs if line["fits"] is not None and row.get("oom")]  # fmt: skip
    real = [foreseen for truth, foreseen in said if truth]
    fine = [foreseen for truth, foreseen in said if not truth]
    return {
        "ran_out": len(real), "foreseen": sum(real),
        "recall": round(sum(real) / len(real), 3) if real else None,
        "fitted": len(fine), "false_alarms": sum(fine),
        "false_alarm_percent": round(100 * sum(fine) / len(fine), 2) if fine else None,
    }  # fmt: skip


def regret(pairs: Sequence[tuple[dict[str, str], dict]]) -> dict[str, object]:
    """Compare the layout chosen by prediction with the best that was measured.

    Groups are the layouts of one model on as many GPUs with the same batch, where a source
    measured four or more.
    """
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for row, line in pairs:
        measured, predicted = number(row.get("step_time_s")), line["step_time_s"]
        if measured and predicted:
            groups[tuple(row.get(name, "") for name in GROUP)].append((predicted, measured))
    lost: dict[str, list[float]] = defaultdict(list)
    for key, found in groups.items():
        if len(found) >= 4:
            best = min(measured for _, measured in found)
            lost[key[0][:40]].append(100 * (min(found)[1] / best - 1))
    return {
        name: {"groups": len(ones), "mean": round(statistics.mean(ones), 1),
               "worst": round(max(ones), 1)} for name, ones in lost.items()
    }  # fmt: skip


if __name__ == "__main__":
    main()
