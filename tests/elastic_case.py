"""A run whose supervisor sees machines come and go, and whose ranks note which rows they use."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

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
    """Be a rank that notes the rows of each step, and dies where it is told to."""
    from cnai.core.events import Event, StepDone
    from cnai.core.runfolder import EventWriter
    from cnai.data import DatasetReader
    from cnai.flows import worker

    read, write = DatasetReader.rows, EventWriter.write
    folder = Path(context.payload["run"]) / "rows"
    folder.mkdir(exist_ok=True)
    notes = (folder / f"{context.attempt}-{context.rank}.jsonl").open("w")
    dies = json.loads(os.environ.get("DIES", "[]"))

    def rows(self: Any, step: int, first: int, count: int) -> np.ndarray:
        found = read(self, step, first, count)
        for index, row in enumerate(found):
            print(json.dumps([step, first + index, hash(row.tobytes())]), file=notes, flush=True)
        return found

    def record(self: EventWriter, event: Event) -> None:
        write(self, event)
        if isinstance(event, StepDone) and [context.attempt, context.rank, event.step] in dies:
            os.kill(os.getpid(), 9)

    DatasetReader.rows = rows
    EventWriter.write = record
    return worker.train_rank(context)


def committed_rows(run: RunFolder) -> dict[int, list[int]]:
    """Return the rows of the global batch that each committed step used, sorted.

    A row that several ranks of a model-parallel group or several stages read counts once; a step
    that was repeated counts as its last attempt did it.
    """
    starts = {e.attempt: e.resumed_step for e in read_events(run) if isinstance(e, AttemptStarted)}
    found: dict[int, list[int]] = {}
    for attempt, start in sorted(starts.items()):
        found = {step: rows for step, rows in found.items() if step < start}
        noted: dict[int, set[int]] = defaultdict(set)
        for file in (run.root / "rows").glob(f"{attempt}-*.jsonl"):
            for line in file.read_text().splitlines():
                step, row, _ = json.loads(line)
                noted[step].add(row)
        found |= {step: sorted(rows) for step, rows in noted.items()}
    return found
