"""Bytes that a rank sends in a step, by axis, against the least that the layout needs.

    python benchmarks/communication.py [--width 64] [--layers 4]

Real processes over gloo; what they send is counted where torch hands it on, in one step. Prints one
JSON object: for every layout and axis the bytes counted, the least, and their ratio (None where the
layout needs nothing there), mean of the ranks. `tie` is the sum of a tied embedding between its two
owners, `world` the one message of the step; where one axis holds all ranks it is counted there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.cluster.local import LocalGang
from cnai.core.layout import ParallelPlan
from cnai.core.records import convert, to_dict
from cnai.core.shape import DecoderShape
from cnai.core.spec import load_spec
from cnai.core.spec.sections import Train
from cnai.flows.plan import plan_run
from cnai.plan.traffic import least_bytes
from gang_run import run_ranks

BATCH, VOCAB, SEQUENCE = 16, 512, 32
LAYOUTS: dict[str, dict[str, Any]] = {
    "dp2": {"data_parallel": {"size": 2}},
    "dp2 sharded": {"data_parallel": {"size": 2, "sharding": "full"}},
    "tp2": {"model_parallel": {"size": 2}},
    "tp2 sequence": {"model_parallel": {"size": 2, "sequence": True}},
    "pp2": {"pipeline_parallel": {"stages": 2}},
    "dp2 tp2 pp2": {
        "data_parallel": {"size": 2}, "model_parallel": {"size": 2},
        "pipeline_parallel": {"stages": 2},
    },
}  # fmt: skip


class Rows:
    """Made-up rows."""

    def rows(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return rows of a step."""
        size = (BATCH, SEQUENCE + 1)
        return np.random.default_rng(step).integers(VOCAB, size=size)[first : first + count]

    def prefetch(self, step: int, first: int, count: int) -> None:
        """There is nothing to fetch."""

    def validation(self, limit: int | None = None) -> NDArray[np.int64]:
        """Return rows that training does not see."""
        return self.rows(10**6, 0, limit or BATCH)


def shape_of(asked: dict[str, int]) -> DecoderShape:
    """Return the decoder of the comparison."""
    width = asked["width"]
    return DecoderShape(
        layers=asked["layers"], width=width, heads=4, kv_heads=4, ffn_width=2 * width, vocab=VOCAB,
        sequence=SEQUENCE, tied_head=True,
    )  # fmt: skip


def plan_of(shape: DecoderShape, parallel: dict[str, Any]) -> ParallelPlan:
    """Plan one layout; sizes that it does not name are 1."""
    sizes: dict[str, Any] = {
        "data_parallel": {"size": 1, "sharding": "none"}, "model_parallel": {"size": 1},
        "pipeline_parallel": {"stages": 1},
    }  # fmt: skip
    sizes = {axis: {**one, **parallel.get(axis, {})} for axis, one in sizes.items()}
    sizes["pipeline_parallel"]["microbatches"] = 4
    return plan_run(
        load_spec({
            "model": {
                "layers": shape.layers, "width": shape.width, "heads": shape.heads,
                "ffn_width": shape.ffn_width, "vocab": shape.vocab, "sequence": shape.sequence,
            },
            "parallel": sizes,
            "train": {"batch": BATCH},
        }).spec
    )  # fmt: skip


def rank(context: Any) -> int:
    """Be one rank: count the second step."""
    from cnai.models import initial_weights
    from cnai.train.build import build_decoder
    from cnai.train.ranks import joined
    from cnai.train.traffic import Traffic
    from cnai.train.trainer import Trainer, TrainJob

    asked = context.payload
    plan, shape = convert(ParallelPlan, asked["plan"], where="payload"), shape_of(asked)
    with joined(
        plan, context.rank, store=context.store, attempt=0, timeout_seconds=60, tied=True
    ) as ranks:
        job = TrainJob(
            plan=plan, settings=Train(batch=BATCH), steps=10, attempt=0, resume_step=0,
            checkpoint_every=10**9, update_ratio_every=0,
        )  # fmt: skip
        parts = build_decoder(shape, plan, ranks, initial_weights(shape, 0), job.settings)
        trainer, rows = Trainer(job, ranks, parts), Rows()
        trainer.step(0, rows)
        with Traffic(ranks) as traffic:
            trainer.step(1, rows)
        file = Path(asked["folder"]) / f"rank-{context.rank}.json"
        file.write_text(json.dumps([traffic.sent_bytes, traffic.messages]))
    return 0


def measure(gang: LocalGang, shape: DecoderShape, plan: ParallelPlan) -> dict[str, Any]:
    """Run one layout and compare."""
    ranks = plan.layout.ranks
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        payload = {
            "plan": to_dict(plan), "folder": place, "width": shape.width, "layers": shape.layers,
        }  # fmt: skip
        run_ranks(
            gang,
            "communication:rank",
            ranks,
            payload,
            folder,
        )
        told = [json.loads((folder / f"rank-{one}.json").read_text()) for one in range(ranks)]
    least = least_bytes(shape, plan, sequence=SEQUENCE)
    found: dict[str, Any] = {}
    for axis in sorted({axis for sent, _ in told for axis in sent}):
        sent, messages = (sum(one[part].get(axis, 0) for one in told) / ranks for part in (0, 1))
        needed = least.get(axis) or None
        found[axis] = {
            "bytes": sent, "messages": messages, "least_bytes": needed,
            "ratio": sent / needed if needed else None,
        }  # fmt: skip
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    shape = shape_of(vars(asked))
    with LocalGang(server="cnai.train.forkserver", preload=["cnai.train.loop"]) as gang:
        found = {
            name: measure(gang, shape, plan_of(shape, parallel))
            for name, parallel in LAYOUTS.items()
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
