"""CPU seconds a step of every layout, beside torch's own DistributedDataParallel.

    python benchmarks/train_layouts.py [--steps 12] [--width 128] [--schedules] [--json]

All run one after the other in one call, on the same model, rows and number of steps, as processes
of this machine. Figures are CPU seconds a step summed over the ranks (user and system, without
start-up and the first two steps), and ratios against one process; wall time on a shared machine is
noise. The peer is torch DDP around the same module with the same optimizer settings: it shows what
our data axis costs beside the standard one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.cluster.local import LocalGang
from cnai.core.layout import ParallelPlan
from cnai.core.records import convert, to_dict
from cnai.core.schedules import SCHEDULES
from cnai.core.shape import DecoderShape
from cnai.core.spec import load_spec
from cnai.core.spec.sections import Train
from cnai.flows.plan import plan_run
from gang_run import run_ranks

WARM = 2
BATCH = 16


def layouts(shape: DecoderShape) -> dict[str, ParallelPlan]:
    """Plan every layout of the comparison for the same batch and two micro-batches."""
    return {
        "one process": plan_of(shape),
        "dp2": plan_of(shape, data=2),
        "dp2 sharded": plan_of(shape, sharding="full", data=2),
        "tp2": plan_of(shape, model=2),
        "tp2 sequence": plan_of(shape, model=2, sequence=True),
        "pp2": plan_of(shape, pipeline=2),
        "dp2 tp2 pp2": plan_of(shape, data=2, model=2, pipeline=2),
    }


def schedules(shape: DecoderShape) -> dict[str, ParallelPlan]:
    """Plan two pipeline ranks under every schedule, for four micro-batches."""
    plans = {
        f"pp2 {name}": plan_of(shape, pipeline=2, microbatches=4, schedule=name)
        for name in SCHEDULES
    }
    return {"one process": plan_of(shape, microbatches=4), **plans}


def plan_of(shape: DecoderShape, **asked: Any) -> ParallelPlan:
    """Plan one layout."""
    spec = {
        "model": {
            "layers": shape.layers, "width": shape.width, "heads": shape.heads,
            "kv_heads": shape.kv_heads, "vocab": shape.vocab, "sequence": shape.sequence,
        },
        "parallel": {
            "data_parallel": {
                "size": asked.get("data", 1), "sharding": asked.get("sharding", "none"),
            },
            "model_parallel": {
                "size": asked.get("model", 1), "sequence": asked.get("sequence", False),
            },
            "pipeline_parallel": {
                "stages": asked.get("pipeline", 1), "schedule": asked.get("schedule", "1F1B"),
                "microbatches": asked.get("microbatches", 2),
            },
        },
        "train": {"batch": BATCH},
    }  # fmt: skip
    return plan_run(load_spec(spec).spec)


def measure(gang: LocalGang, target: str, plan: ParallelPlan, arguments: argparse.Namespace) -> Any:
    """Run one layout and return its CPU seconds a step and its last loss."""
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(
            gang,
            f"train_layouts:{target}",
            plan.layout.ranks,
            {
                "plan": to_dict(plan),
                "steps": arguments.steps + WARM,
                "out": folder,
                "width": arguments.width,
            },
            Path(folder),
        )
        ranks = [json.loads(file.read_text()) for file in Path(folder).glob("*.json")]
    return {
        "cpu_seconds": sum(rank["cpu_seconds"] for rank in ranks) / arguments.steps,
        "loss": ranks[0]["loss"],
    }


class Rows:
    """Made-up rows that depend on step and row alone."""

    def __init__(self, shape: DecoderShape) -> None:
        self._shape = shape

    def rows(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return rows of a step."""
        size = (BATCH, self._shape.sequence + 1)
        whole = np.random.default_rng(step).integers(self._shape.vocab, size=size)
        return whole[first : first + count]

    def prefetch(self, step: int, first: int, count: int) -> None:
        """There is nothing to fetch."""

    def validation(self, limit: int | None = None) -> NDArray[np.int64]:
        """Return rows that training does not see."""
        return self.rows(10**6, 0, limit or BATCH)


def shape_of(width: int) -> DecoderShape:
    """Return the model of the comparison."""
    return DecoderShape(
        layers=4, width=width, heads=4, kv_heads=2, ffn_width=352, vocab=4096, sequence=128,
        tied_head=True,
    )  # fmt: skip


def ours(context: Any) -> int:
    """Be one rank of our runtime."""
    from cnai.models import initial_weights
    from cnai.train.build import build_decoder
    from cnai.train.ranks import joined
    from cnai.train.trainer import Trainer, TrainJob

    asked = context.payload
    plan = convert(ParallelPlan, asked["plan"], where="payload")
    shape = shape_of(asked["width"])
    with joined(
        plan, context.rank, store=context.store, attempt=0, timeout_seconds=60, tied=True
    ) as ranks:
        job = TrainJob(
            plan=plan, settings=Train(batch=BATCH), steps=asked["steps"], attempt=0, resume_step=0,
            checkpoint_every=10**9, update_ratio_every=0,
        )  # fmt: skip
        parts = build_decoder(shape, plan, ranks, initial_weights(shape, 0), Train())
        trainer = Trainer(job, ranks, parts)
        rows = Rows(shape)
        report(context, lambda step: trainer.step(step, rows)[0].loss)
    return 0


def torch_ddp(context: Any) -> int:
    """Be one rank of torch's DistributedDataParallel."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from cnai.models import Decoder, fill, initial_weights, token_loss
    from cnai.train.optimizer import learning_rate
    from cnai.train.ranks import joined

    shape, steps = shape_of(context.payload["width"]), context.payload["steps"]
    settings, share = Train(batch=BATCH), BATCH // context.ranks
    plan = convert(ParallelPlan, context.payload["plan"], where="payload")
    with joined(plan, context.rank, store=context.store, attempt=0, timeout_seconds=60, tied=False):
        module = Decoder(shape)
        fill(module, initial_weights(shape, 0))
        wrapped = DistributedDataParallel(module)
        decayed = [p for p in module.parameters() if p.dim() > 1]
        plain = [p for p in module.parameters() if p.dim() == 1]
        rule = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": settings.weight_decay},
                {"params": plain, "weight_decay": 0.0},
            ],
            betas=settings.betas,
            foreach=True,
        )
        rows = Rows(shape)

        def step(number: int) -> float:
            tokens = torch.from_numpy(rows.rows(number, context.rank * share, share))
            total = torch.zeros(())
            first, last = tokens.chunk(2)
            with wrapped.no_sync():
                loss = token_loss(wrapped(first[:, :-1]), first[:, 1:]) / 2
                loss.backward()
            total += loss.detach()
            loss = token_loss(wrapped(last[:, :-1]), last[:, 1:]) / 2
            loss.backward()
            total += loss.detach()
            torch.nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm or 1.0)
            for group in rule.param_groups:
                group["lr"] = learning_rate(settings, number, steps)
            rule.step()
            rule.zero_grad()
            dist.all_reduce(total)
            return float(total) / context.ranks

        report(context, step)
    return 0


def report(context: Any, step: Callable[[int], float]) -> None:
    """Do all steps and leave the CPU time of those after the warm-up in a file."""
    loss = start = 0.0
    for number in range(context.payload["steps"]):
        if number == WARM:
            start = time.process_time()
        loss = step(number)
    spent = time.process_time() - start
    out = Path(context.payload["out"]) / f"{context.rank}.json"
    out.write_text(json.dumps({"cpu_seconds": spent, "loss": loss}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--schedules", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    plans = (schedules if arguments.schedules else layouts)(shape_of(arguments.width))
    gang = LocalGang(
        server="cnai.train.forkserver", preload=["cnai.train.loop", "cnai.train.build"]
    )
    with gang:
        found = {name: measure(gang, "ours", plan, arguments) for name, plan in plans.items()}
        if not arguments.schedules:
            found["torch DDP 2"] = measure(gang, "torch_ddp", plans["dp2"], arguments)
    one = found["one process"]
    for result in found.values():
        result["ratio"] = result["cpu_seconds"] / one["cpu_seconds"]
        result["loss_difference"] = abs(result["loss"] - one["loss"])
    if arguments.json:
        print(json.dumps({"layouts": found}, indent=2))
        return
    print(f"{'layout':<26}{'CPU s/step':>12}{'x one process':>15}{'loss difference':>18}")
    for name, result in found.items():
        print(
            f"{name:<26}{result['cpu_seconds']:>12.3f}{result['ratio']:>15.2f}"
            f"{result['loss_difference']:>18.1e}"
        )
    if not arguments.schedules:
        ratio = found["dp2"]["cpu_seconds"] / found["torch DDP 2"]["cpu_seconds"]
        print(f"our dp2 over torch DDP: {ratio:.2f} x the CPU time")


if __name__ == "__main__":
    main()
