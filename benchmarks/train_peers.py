"""Our training step beside the same step by hand in PyTorch, layout by layout.

    python benchmarks/train_peers.py [--layouts "one process" dp2 ...] [--repetitions 5] [--json]

Both run in the same processes, on the same model, cut, rows and rates in float32, a few steps in
turn, so that a busy machine is busy for both. Figures are CPU seconds a step summed over the ranks
(user and system, start-up and warm-up left out), the median over the repetitions; `ratio` is the
median of the ratios of neighbours in time. By hand is `benchmarks/by_hand`: torch's
DistributedDataParallel, fully_shard, parallelize_module and torch.distributed.pipelining. For one
process it is the bare step, so there the ratio is what our loop costs. Both get the environment of
our ranks, which keeps freed memory; `--plain` leaves that out. torchtitan is left out, with the
reason.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cnai.cluster.local import LocalGang
from cnai.core.layout import ParallelPlan
from cnai.core.records import convert, to_dict
from cnai.core.spec.sections import Train
from cnai.flows.doors import rank_environment

sys.path.insert(0, str(Path(__file__).parent))
from train_layouts import BATCH, Rows, plan_of, shape_of

from gang_run import PLAIN, run_ranks

WARM = 2
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one process": ("bare", {}),
    "dp2": ("ddp", {"data": 2}),
    "dp2 sharded": ("fsdp", {"data": 2, "sharding": "full"}),
    "tp2": ("tensor", {"model": 2}),
    "pp2": ("pipeline", {"pipeline": 2}),
    "dp2 tp2 pp2": ("pipeline", {"data": 2, "model": 2, "pipeline": 2}),
}
"""The file of `by_hand` and the sizes of each layout."""

LoopStep = Callable[[int], float]


def rank(context: Any) -> int:
    """Be one rank that does some of our steps and some by hand, in turn."""
    import torch
    import torch.distributed as dist

    from cnai.models import initial_weights
    from cnai.train.ranks import joined

    asked = context.payload
    plan = convert(ParallelPlan, asked["plan"], where="payload")
    shape = shape_of(asked["width"])
    weights = initial_weights(shape, 0)
    with joined(
        plan, context.rank, store=context.store, attempt=0, timeout_seconds=120, tied=True
    ) as ranks:
        torch.manual_seed(0)
        both = {
            "ours": _ours(plan, ranks, shape, weights),
            "by hand": _by_hand(asked["peer"], plan, ranks, shape, weights),
        }
        spent: dict[str, list[float]] = {name: [] for name in both}
        losses = dict.fromkeys(both, 0.0)
        done = 0
        for repetition in range(-1, asked["repetitions"]):
            count = WARM if repetition < 0 else asked["steps"]
            turn = list(both) if repetition % 2 else list(reversed(both))
            for name in turn:
                dist.barrier()
                start = time.process_time()
                for number in range(done, done + count):
                    losses[name] = both[name](number)
                if repetition >= 0:
                    spent[name].append((time.process_time() - start) / count)
            done += count
    out = Path(asked["out"]) / f"{context.rank}.json"
    out.write_text(json.dumps({"spent": spent, "losses": losses}))
    return 0


def _settings() -> Train:
    return Train(batch=BATCH, warmup_steps=0, schedule="constant")


def _ours(plan: ParallelPlan, ranks: Any, shape: Any, weights: Any) -> LoopStep:
    from cnai.train.build import build_decoder
    from cnai.train.trainer import Trainer, TrainJob

    job = TrainJob(
        plan=plan, settings=_settings(), steps=10**9, attempt=0, resume_step=0,
        checkpoint_every=10**9, update_ratio_every=0,
    )  # fmt: skip
    trainer = Trainer(job, ranks, build_decoder(shape, plan, ranks, weights, _settings()))
    rows = Rows(shape)
    return lambda number: trainer.step(number, rows)[0].loss


def _by_hand(peer: str, plan: ParallelPlan, ranks: Any, shape: Any, weights: Any) -> LoopStep:
    import torch

    more = {}
    if peer == "pipeline":
        (stage,) = plan.stages_of(ranks.place.pipeline)
        more["layers"] = (stage.first_layer, stage.end_layer)
    step = importlib.import_module(f"by_hand.{peer}").make(shape, weights, ranks.mesh, **more)
    rows, share = Rows(shape), BATCH // plan.layout.data
    first, rate = ranks.place.data * share, _settings().learning_rate
    return lambda number: step(torch.from_numpy(rows.rows(number, first, share)), rate)


def measure(gang: LocalGang, name: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Run one layout and return the medians."""
    peer, sizes = LAYOUTS[name]
    plan = plan_of(shape_of(arguments.width), **sizes)
    environment = PLAIN
    if not arguments.plain:
        environment = {**rank_environment(plan.layout.ranks), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(
            gang,
            "train_peers:rank",
            plan.layout.ranks,
            {
                "plan": to_dict(plan),
                "peer": peer,
                "out": folder,
                "width": arguments.width,
                "steps": arguments.steps,
                "repetitions": arguments.repetitions,
            },
            Path(folder),
            environment,
        )
        ranks = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    ours, theirs = (
        [sum(spent) for spent in zip(*(one["spent"][who] for one in ranks), strict=True)]
        for who in ("ours", "by hand")
    )
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {
        "ours_cpu_seconds": statistics.median(ours),
        "by_hand_cpu_seconds": statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "lowest_ratio": min(ratios),
        "highest_ratio": max(ratios),
        "loss_difference": abs(ranks[0]["losses"]["ours"] - ranks[0]["losses"]["by hand"]),
    }


def torchtitan_reason() -> str:
    """Say why torchtitan is left out of the table."""
    try:
        importlib.import_module("torchtitan.models.llama3")
    except ImportError as error:
        return f"it cannot be imported here: {error}"
    return "it can be imported, but its trainer has no step that runs inside other processes"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="in each repetition")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument(
        "--plain", action="store_true", help="without the settings that our ranks get for memory"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gang = LocalGang(
        server="cnai.train.forkserver", preload=["cnai.train.loop", "cnai.train.build"]
    )
    with gang:
        found = {name: measure(gang, name, arguments) for name in arguments.layouts}
    reason = torchtitan_reason()
    if arguments.json:
        print(json.dumps({"layouts": found, "torchtitan": reason}, indent=2))
        return
    print(f"{'layout':<14}{'ours':>9}{'by hand':>9}{'ratio':>8}  {'from':>5}{'to':>6}  loss apart")
    for name, one in found.items():
        print(
            f"{name:<14}{one['ours_cpu_seconds']:>9.3f}{one['by_hand_cpu_seconds']:>9.3f}"
            f"{one['ratio']:>8.3f}  {one['lowest_ratio']:>5.2f}{one['highest_ratio']:>6.2f}"
            f"  {one['loss_difference']:.1e}"
        )
    print(f"CPU seconds a step over all ranks; torchtitan is left out: {reason}")


if __name__ == "__main__":
    main()
