"""A run of `ai-cli train` whose ranks are slow where a test wants it: a sleep a row and layer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cnai.cluster import LocalGang
from cnai.core.runfolder import RunFolder
from cnai.core.spec import load_spec
from cnai.flows.beginning import Beginning
from cnai.flows.doors import Doors, rank_environment
from cnai.flows.folder import opened_run
from cnai.flows.listener import Silence
from cnai.flows.machines import fleet_of
from cnai.flows.plan import plan_run
from cnai.flows.train import TrainResult, train_run


class Notes(Silence):
    """Hears what the user is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def train_slowly(
    spec: Path, slow: list[float], **more: Any
) -> tuple[RunFolder, TrainResult, Notes]:
    """Train as `ai-cli train` does, with ranks that sleep so many seconds for a row and layer.

    Args:
        slow: Seconds by rank.
        more: `until`, the step of an attempt from which on nobody sleeps; `punish`, seconds that
            every step of a later attempt takes longer.
    """
    loaded = load_spec(spec).spec
    notes = Notes()
    doors = Doors(
        gang=LocalGang(
            server="cnai.train.forkserver", preload=["balance_case", "cnai.flows.worker"]
        ),
        fleet=lambda: fleet_of(loaded),
        worker="balance_case:train_rank",
        environment=lambda ranks: {
            **rank_environment(ranks),
            "OMP_NUM_THREADS": "1",
            "SLOW": json.dumps({"ranks": slow, **more}),
            "PYTHONPATH": os.pathsep.join(
                str(Path(__file__).parents[1] / name) for name in ("src", "tests")
            ),
        },
    )
    with opened_run(loaded, fresh=False) as run:
        manifest = Beginning(loaded, run, notes).data()
        return run, train_run(loaded, run, plan_run(loaded), manifest, notes, doors), notes


def train_rank(context: Any) -> int:
    """Be a rank that sleeps in each of its layers."""
    import time

    from cnai.flows import worker
    from cnai.train.ranks import Ranks
    from training_case import slow_down

    asked = json.loads(os.environ["SLOW"])
    build, total = worker.build_decoder, Ranks.total

    def built(*words: Any) -> Any:
        parts = build(*words)
        slow_down(parts, asked["ranks"][context.rank])
        return parts

    def late(self: Ranks, values: list[float]) -> list[float]:
        time.sleep(asked.get("punish", 0.0) if context.attempt % 2 else 0.0)
        return total(self, values)

    worker.build_decoder, Ranks.total = built, late
    return worker.train_rank(context)
