"""Fit how sure a diagnosis of logs may be: `--logs F.jsonl`; prints what `calibration.py` holds.

Labelled logs as they are, are all judged right by rules that were written with them in view, which
says nothing of doubt. So each log is also judged with what a real log may lack: a share of its
lines taken out at random, its end cut off, and the labelled line itself gone. The share of right
classes by raw confidence is then fitted as a rising curve (pool adjacent violators), five times,
each time without a fifth of the logs, all variants of a log together, and measured on these.

Source: Zadrozny and Elkan 2002, "Transforming classifier scores into accurate multiclass
probability estimates".
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cnai.diagnose.logs import diagnose_streams, raw_confidence

FOLDS, DRAWS = 5, 4
ASKED_FOR = {"killed": "host_oom"}
Pair = tuple[float, bool]


def variants(record: dict[str, Any], dice: random.Random) -> Iterator[dict[str, list[str]]]:
    """Give a log as it is, and with what a real one may lack."""
    log = record["log"]
    yield log
    for share in (0.2, 0.4, 0.6, 0.8) * DRAWS:
        yield {name: _thinned(lines, share, dice) for name, lines in log.items()}
    for share in (0.3, 0.6):
        yield {name: lines[: int(len(lines) * (1 - share))] for name, lines in log.items()}
    root = record.get("root_line_substring")
    if root:
        yield {name: [one for one in lines if root not in one] for name, lines in log.items()}


def _thinned(lines: list[str], share: float, dice: random.Random) -> list[str]:
    return [one for one in lines if dice.random() > share]


def judged(record: dict[str, Any], dice: random.Random) -> list[Pair]:
    """Return raw confidence and whether the class was right, for each variant with a fault."""
    pairs = []
    for log in variants(record, dice):
        found = diagnose_streams(log)
        if found.fault == "no_fault":
            continue
        name = ASKED_FOR.get(found.fault, found.fault)
        pairs.append((raw_confidence(found.ranking), name == record["cause"]))
    return pairs


def fitted(pairs: Sequence[Pair]) -> list[tuple[float, float]]:
    """Fit a rising curve: the upper end of each piece of raw confidence, and the share right.

    Half a right and half a wrong are added to each piece, so that nothing is certain.
    """
    counts: dict[float, list[float]] = {}
    for raw, right in pairs:
        tally = counts.setdefault(round(raw, 2), [0.0, 0.0])
        tally[0] += right
        tally[1] += 1
    pieces: list[list[float]] = []  # sum of right, count, upper end
    for raw, (rights, number) in sorted(counts.items()):
        pieces.append([rights, number, raw])
        while len(pieces) > 1 and pieces[-2][0] / pieces[-2][1] >= pieces[-1][0] / pieces[-1][1]:
            last = pieces.pop()
            pieces[-1] = [pieces[-1][0] + last[0], pieces[-1][1] + last[1], last[2]]
    return [(upper, (rights + 0.5) / (number + 1)) for rights, number, upper in pieces]


def read_off(curve: Sequence[tuple[float, float]], raw: float) -> float:
    """Return the share right at a raw confidence."""
    return next((share for upper, share in curve if raw <= upper), curve[-1][1])


def error(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Return the mean squared error and the expected calibration error in ten bins."""
    squares = sum((said - right) ** 2 for said, right in pairs) / len(pairs)
    bins: dict[int, list[Pair]] = {}
    for said, right in pairs:
        bins.setdefault(min(9, int(said * 10)), []).append((said, right))
    off = sum(
        abs(sum(said for said, _ in one) - sum(right for _, right in one)) for one in bins.values()
    )
    return squares, off / len(pairs)


def main() -> None:
    """Fit, cross-validate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    path = parser.parse_args().logs
    dice = random.Random(0)  # noqa: S311
    records = [json.loads(line) for line in path.read_text().splitlines() if line]
    dice.shuffle(records)
    parts = [[judged(one, dice) for one in records[fold::FOLDS]] for fold in range(FOLDS)]
    pairs = [pair for part in parts for one in part for pair in one]
    held_out = []
    for fold in range(FOLDS):
        others = [p for at in range(FOLDS) if at != fold for one in parts[at] for p in one]
        curve = fitted(others)
        held_out += [(read_off(curve, raw), right) for one in parts[fold] for raw, right in one]
    right = sum(right for _, right in pairs)
    print(f"{len(pairs)} judgements of {len(records)} logs, {right / len(pairs):.0%} right")
    for name, measured in (("raw", pairs), ("calibrated, held out", held_out)):
        squares, off = error(measured)
        print(f"{name:22} squared error {squares:.3f}, calibration error {off:.3f}")
    print([(round(upper, 3), round(share, 2)) for upper, share in fitted(pairs)])


if __name__ == "__main__":
    main()
