"""A run whose supervisor sees machines come and go, and whose ranks note which rows they use."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cnai.cluster import LocalGang, local_fleet
from cnai.core.events import AttemptStarted
from cnai.core.fleet import Fleet
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.spec import load_spec
from cnai.flows.beginning import Beginning
from cnai.flows.doors import Doors, rank_environment
from cnai.flows.folder import opened_run
from cnai.flows.listener import Silence
from cnai.flows.plan import plan_run
from cnai.flows.train import TrainResult, train_run


class Machines(Silence):
    """A fleet whose size follows the step that the run has reached; hears how far the run is."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self._sizes = sizes
        self._step = 0
        self.told: list[str] = []

    def training(self, progress: Any) -> None:
        self._step = max(self._step, progress.step)

    def note(self, text: str) -> None:
        self.told.append(text)

    warn = note

    def fleet(self) -> Fleet:
        devices = next(size for step, size in reversed(self._sizes.items()) if step <= self._step)
        (node,) = local_fleet().nodes
        return Fleet(nodes=(replace(node, devices=devices),))


def train_on(
    spec: Path, machines: Machines, *, environment: dict[str, str] | None = None
) -> tuple[RunFolder, TrainResult]:
    """Train as `ai-cli train` does, on machines that come and go."""
    loaded = load_spec(spec).spec
    doors = Doors(
        gang=LocalGang(
            server="cnai.train.forkserver", preload=["elastic_case", "cnai.flows.worker"]
        ),
        fleet=machines.fleet,
        worker="elastic_case:train_rank",
        environment=lambda ranks: {
            **rank_environment(ranks),
            **(environment or {}),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                str(Path(__file__).parents[1] / name) for name in ("src", "tests")
            ),
        },
    )
    with opened_run(loaded, fresh=False) as run:
        manifest = Beginning(loaded, run, machines).data()
        return run, train_run(loaded, run, plan_run(loaded), manifest, machines, doors)


def train_rank(context: Any) -> int:
    """Be a rank that notes the rows of each step, and kills whom it is told to."""
    from cnai.data import DatasetReader
    from cnai.flows import worker

    read = DatasetReader.rows
    folder = Path(context.payload["run"]) / "rows"
    folder.mkdir(exist_ok=True)
    notes = (folder / f"{context.attempt}-{context.rank}.jsonl").open("w")

    def rows(self: Any, step: int, first: int, count: int) -> np.ndarray:
        found = read(self, step, first, count)
        for index, row in enumerate(found):
            digest = hashlib.sha256(row.tobytes()).hexdigest()[:16]
            print(json.dumps([step, first + index, digest]), file=notes, flush=True)
        return found

    DatasetReader.rows = rows
    for kill in json.loads(os.environ.get("KILLS", "[]")):
        if (kill["attempt"], kill["rank"]) == (context.attempt, context.rank):
            arrange(kill)
    return worker.train_rank(context)


def arrange(kill: dict[str, Any]) -> None:
    """See to it that a process is killed (-9) at a place of the program.

    Args:
        kill: `where` (start, step, save, publish or load), `step` for a place within a step, and
            `whom` (self, server or supervisor).
    """
    from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

    from cnai.train import checkpoint, loop

    def strike(*_: Any) -> None:
        server = os.getppid()
        victims = {
            "self": os.getpid(),
            "server": server,
            "supervisor": psutil.Process(server).ppid(),
        }
        os.kill(victims[kill.get("whom", "self")], signal.SIGKILL)
        time.sleep(60)

    def first(thing: Any, name: str, *, when: Callable[..., bool] = lambda *_: True) -> None:
        original = getattr(thing, name)

        def replacement(*words: Any, **more: Any) -> Any:
            if when(*words):
                strike()
            return original(*words, **more)

        setattr(thing, name, replacement)

    steps = iter(range(10**6))
    match kill["where"]:
        case "start":
            strike()
        case "step":  # gradients are there, the weights are not yet changed
            first(loop.Trainer, "_agree", when=lambda *_: next(steps) == kill["step"])
        case "save":  # in the thread, before anything of this rank is written
            first(FileSystemWriter, "write_data")
        case "publish":  # all is written, nothing has its name
            first(checkpoint, "publish_folder")
        case "load":
            first(FileSystemReader, "read_data")


def committed_rows(run: RunFolder) -> dict[int, list[tuple[int, str]]]:
    """Return the rows of the global batch that each committed step used, sorted: index and hash.

    A row that several ranks of a model-parallel group or several stages read counts once; a step
    that was repeated counts as its last attempt did it.
    """
    starts = {e.attempt: e.resumed_step for e in read_events(run) if isinstance(e, AttemptStarted)}
    found: dict[int, list[tuple[int, str]]] = {}
    for attempt, start in sorted(starts.items()):
        found = {step: rows for step, rows in found.items() if step < start}
        noted: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for file in (run.root / "rows").glob(f"{attempt}-*.jsonl"):
            for line in file.read_text().splitlines():
                step, row, digest = json.loads(line)
                noted[step].add((row, digest))
        found |= {step: sorted(rows) for step, rows in noted.items()}
    return found


if __name__ == "__main__":
    train_on(Path(sys.argv[1]), Machines({0: int(sys.argv[2])}))
