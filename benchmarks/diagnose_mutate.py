"""Say the same failures in other ways: `--logs F.jsonl --out G.jsonl [--seed N]`.

Paths, numbers, hosts, pids and step counts change, lines get the prefixes of other launchers, lines
that have nothing to do with the failure are put between, and rank logs may be compressed into one.
What is right (class, stream, line) stays known, so that the same scorer serves.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NOISE = (
    "Loading checkpoint shards: 100%|##########| 4/4 [00:12<00:00,  3.1s/it]",
    "INFO:root:dataset has 120394 rows",
    "/opt/x/site-packages/torch/utils/checkpoint.py:87: UserWarning: None of the inputs have grads",
    "node-q:811:922 [0] NCCL INFO Channel 03/0 : 0[0] -> 1[1] via P2P/IPC",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
)
_PATH = re.compile(r"(/(?:workspace|opt|app|usr|home|tmp|mnt|data|outputs)(?:/[\w.+-]+)+)")
_HOST = re.compile(r"\bnode-[a-z]\b")
_PID = re.compile(r"(?<=pid[ :=])\s?\d{3,7}|(?<=Process )\d{4,7}|(?<=process )\d{4,7}")


def mutate(record: dict[str, Any], random_: random.Random) -> dict[str, Any]:
    """Return the record in other words."""
    wanted = record.get("root_line_substring")
    prefix = random_.choice(PREFIXES)
    changed = {
        stream: _stream(stream, lines, wanted, prefix, random_)
        for stream, lines in record["log"].items()
    }
    order = list(changed)
    random_.shuffle(order)
    return {**record, "log": {stream: changed[stream] for stream in order}}


def _stream(
    stream: str,
    lines: Sequence[str],
    wanted: str | None,
    prefix: Callable[[str, int], str],
    random_: random.Random,
) -> list[str]:
    told: list[str] = []
    for line in lines:
        new = _words(line, random_)
        if wanted and wanted in line and wanted not in new:
            new = line
        if stream.isdigit() and not line.startswith("["):
            new = prefix(new, int(stream))
        told.append(new)
    if stream.isdigit():
        told[:0] = random_.sample(NOISE, 2)
    return told


def _words(line: str, random_: random.Random) -> str:
    line = _PATH.sub(lambda found: f"/srv/team{random_.randrange(9)}{found[0]}", line)
    line = _HOST.sub(f"gpu{random_.randrange(900)}.cluster", line)
    return _PID.sub(lambda _: str(random_.randrange(1000, 99999)), line)


PREFIXES: tuple[Callable[[str, int], str], ...] = (
    lambda line, _: line,
    lambda line, rank: f"[rank{rank}]: {line}",
    lambda line, rank: f"[default{rank}]:{line}",
    lambda line, _: f"2026-03-04T05:06:07.891Z {line}",
    lambda line, rank: f"(RayTrainWorker pid={rank + 4000}, ip=10.0.0.{rank}) {line}",
    lambda line, rank: f"{rank}: {line}",
    lambda line, rank: f"worker-{rank}: {line}",
    lambda line, _: f"\x1b[36m{line}\x1b[0m",
    lambda line, _: f"2026-03-04T05:06:07.891234Z stderr F {line}",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the mutated records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    random_ = random.Random(given.seed)  # noqa: S311 - no secret
    with given.out.open("w") as out:
        for line in given.logs.read_text().splitlines():
            out.write(json.dumps(mutate(json.loads(line), random_)) + "\n")


if __name__ == "__main__":
    main()
