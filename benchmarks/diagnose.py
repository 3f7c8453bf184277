"""Diagnose a file of failure logs: `--logs F.jsonl --predictions O.jsonl`.

Each line of the file is a record with `id` and `log` (lines by stream); for each one a line
`{"id", "class", "top3", "stream", "line", "action"}` is written. `diagnose_score.py` scores it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cnai.diagnose.faults import faults
from cnai.diagnose.logs import diagnose_streams

ASKED_FOR = {"killed": "host_oom"}
"""Classes of ours that the data files under another name."""


def predict(record: Mapping[str, object]) -> dict[str, object]:
    """Diagnose one record."""
    log = record["log"]
    if not isinstance(log, dict):
        raise TypeError(f"record {record.get('id')} has no streams")
    found = diagnose_streams({str(name): lines for name, lines in log.items()}, top=4)
    return {
        "id": record["id"],
        "class": ASKED_FOR.get(found.fault, found.fault),
        "top3": list(dict.fromkeys(ASKED_FOR.get(name, name) for name in found.top))[:3],
        "stream": found.stream,
        "line": found.line.raw if found.line else None,
        "action": faults()[found.fault].action if found.fault in faults() else None,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the predictions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    given = parser.parse_args(arguments)
    with given.logs.open() as logs, given.predictions.open("w") as out:
        for line in logs:
            if line.strip():
                out.write(json.dumps(predict(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
