"""How long a checkpoint keeps training waiting: in the background against at once.

    python benchmarks/checkpoint_block.py [--megabytes 120] [--saves 5] [--json]

Two ranks hold a decoder of the size asked for with its AdamW state, and save it several times with
a few training steps in between. The first save is not counted: it allocates the copy.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.cluster.local import LocalGang
from cnai.core.events import CheckpointSaved, Event
from cnai.core.layout import Layout, ParallelPlan
from cnai.core.records import convert, to_dict
from cnai.core.runfolder import RunFolder
from cnai.core.shape import DecoderShape
from cnai.core.spec import load_spec
from cnai.core.spec.sections import Train
from cnai.flows.plan import plan_run
from gang_run import run_ranks

BATCH = 4
LAYOUTS = {"dp2": Layout(data=2), "tp2": Layout(model=2), "pp2": Layout(pipeline=2)}


class Rows:
    """Made-up rows."""

    def __init__(self, shape: DecoderShape) -> None:
        self._shape = shape

    def rows(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return rows of a step."""
        size = (BATCH, self._shape.sequence + 1)
        return np.random.default_rng(step).integers(self._shape.vocab, size=size)[
            first : first + count
        ]

    def prefetch(self, step: int, first: int, count: int) -> None:
        """There is nothing to fetch."""

    def validation(self, limit: int | None = None) -> NDArray[np.int64]:
        """Return rows that training does not see."""
        return self.rows(10**6, 0, limit or BATCH)


def shape_of(megabytes: int) -> DecoderShape:
    """Return a decoder whose weights and AdamW state fill so many megabytes, about."""
    width = 256
    layer = 4 * width * width + 3 * width * 2 * width
    return DecoderShape(
        layers=max(2, round(megabytes * 1e6 / 12 / layer)), width=width, heads=4, kv_heads=4,
        ffn_width=2 * width, vocab=512, sequence=32, tied_head=True,
    )  # fmt: skip


def plan_of(shape: DecoderShape, layout: Layout) -> ParallelPlan:
    """Plan a layout of two ranks."""
    return plan_run(
        load_spec({
            "model": {
                "layers": shape.layers, "width": shape.width, "heads": shape.heads,
                "ffn_width": shape.ffn_width, "vocab": shape.vocab, "sequence": shape.sequence,
            },
            "data_parallel": {"size": layout.data, "sharding": "none"},
            "model_parallel": {"size": layout.model},
            "pipeline_parallel": {"stages": layout.pipeline},
            "train": {"batch": BATCH},
        }).spec
    )  # fmt: skip


def rank(context: Any) -> int:
    """Be one rank: save, train, save again."""
    from cnai.models import initial_weights
    from cnai.train.build import build_decoder
    from cnai.train.checkpoint import Checkpoints
    from cnai.train.ranks import joined
    from cnai.train.trainer import Trainer, TrainJob

    asked = context.payload
    plan = convert(ParallelPlan, asked["plan"], where="payload")
    shape = shape_of(asked["megabytes"])
    run = RunFolder(Path(asked["folder"]))
    events: list[Event] = []
    with joined(
        plan, context.rank, store=context.store, attempt=0, timeout_seconds=60, tied=True
    ) as ranks:
        job = TrainJob(
            plan=plan, settings=Train(batch=BATCH), steps=10**6, attempt=0, resume_step=0,
            checkpoint_every=10**9, update_ratio_every=0,
        )  # fmt: skip
        parts = build_decoder(shape, plan, ranks, initial_weights(shape, 0), job.settings)
        trainer, rows = Trainer(job, ranks, parts), Rows(shape)
        checkpoints = Checkpoints(
            run, ranks, keep=2, plan_digest=plan.digest, background=asked["background"]
        )
        step, blocked = 0, []
        with checkpoints:
            for _ in range(asked["saves"] + 1):
                for _ in range(2):
                    trainer.step(step, rows)
                    step += 1
                start = time.perf_counter()
                checkpoints.save(step, trainer.state(), events.append, last=False)
                blocked.append(time.perf_counter() - start)
                # Steps go on until the checkpoint has its name, as in a run that saves rarely.
                while ranks.total([float(not checkpoints.idle)])[0] > 0:
                    trainer.step(step, rows)
                    step += 1
    if context.rank == 0:
        saved = [event for event in events if isinstance(event, CheckpointSaved)]
        found = {
            "blocked_seconds": median(blocked[1:]),
            "event_blocked_seconds": median(event.blocked_seconds for event in saved[1:]),
            "seconds": median(event.seconds for event in saved[1:]),
            "size_bytes": saved[-1].size_bytes,
        }
        (run.root / "found.json").write_text(json.dumps(found))
    return 0


def measure(gang: LocalGang, layout: Layout, asked: argparse.Namespace, *, background: bool) -> Any:
    """Run one layout in one mode."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder))
        run_ranks(
            gang,
            "checkpoint_block:rank",
            layout.ranks,
            {
                "plan": to_dict(plan_of(shape_of(asked.megabytes), layout)),
                "folder": folder,
                "saves": asked.saves,
                "background": background,
                "megabytes": asked.megabytes,
            },
            run.logs,
        )
        return json.loads((run.root / "found.json").read_text())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=120)
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    found = {}
    with LocalGang(server="cnai.train.forkserver", preload=["cnai.train.loop"]) as gang:
        for name, layout in LAYOUTS.items():
            at_once = measure(gang, layout, asked, background=False)
            behind = measure(gang, layout, asked, background=True)
            found[name] = {
                "sync_seconds": at_once["blocked_seconds"],
                "async_blocked_seconds": behind["blocked_seconds"],
                "async_seconds": behind["seconds"],
                "ratio": behind["blocked_seconds"] / at_once["blocked_seconds"],
                "size_bytes": behind["size_bytes"],
            }
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'layout':<8}{'MB':>7}{'sync s':>9}{'blocked s':>11}{'written s':>11}{'ratio':>8}")
    for name, one in found.items():
        print(
            f"{name:<8}{one['size_bytes'] / 1e6:>7.0f}{one['sync_seconds']:>9.3f}"
            f"{one['async_blocked_seconds']:>11.3f}{one['async_seconds']:>11.3f}"
            f"{one['ratio']:>8.2f}"
        )


if __name__ == "__main__":
    main()
