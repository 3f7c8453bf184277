"""Score predictions of `diagnose.py`: `--logs F.jsonl --predictions O.jsonl [--misses]`."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

Record = Mapping[str, object]
_Z = 1.96


def read(path: Path) -> list[dict[str, object]]:
    """Read the records of a file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a share. Source: Wilson 1927."""
    if not of:
        return 0.0, 1.0
    share, z2 = hits / of, _Z**2 / of
    middle = share + z2 / 2
    spread = _Z * math.sqrt(share * (1 - share) / of + z2 / of / 4)
    return (middle - spread) / (1 + z2), (middle + spread) / (1 + z2)


def judge(truth: Record, guess: Record) -> dict[str, bool]:
    """Return which of the questions that a record asks were answered rightly."""
    if truth["cause"] == "no_fault":
        return {"healthy left alone": guess.get("class") == "no_fault"}
    top = guess.get("top3")
    answers = {
        "class top-1": guess.get("class") == truth["cause"],
        "class top-3": isinstance(top, list) and truth["cause"] in top[:3],
        "root stream": str(guess.get("stream")) == str(truth["root_rank"]),
    }
    wanted = truth.get("root_line_substring")
    if wanted is not None:
        answers["root line"] = str(wanted) in str(guess.get("line") or "")
    return answers


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    given = parser.parse_args(arguments)
    guesses = {guess["id"]: guess for guess in read(given.predictions)}
    counts: dict[str, list[bool]] = {}
    for truth in read(given.logs):
        guess = guesses.get(truth["id"], {})
        answers = judge(truth, guess)
        for question, right in answers.items():
            counts.setdefault(question, []).append(right)
        wrong = [question for question, right in answers.items() if not right]
        if given.misses and wrong:
            told = {key: guess.get(key) for key in ("class", "top3", "stream", "line")}
            print(truth["id"], truth["cause"], truth["root_rank"], wrong, told)
    for question, rights in counts.items():
        low, high = wilson(sum(rights), len(rights))
        share = sum(rights) / len(rights)
        print(f"{question:20} {share:.3f} ({sum(rights)}/{len(rights)}; {low:.2f}-{high:.2f})")


if __name__ == "__main__":
    main()
