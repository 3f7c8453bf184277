"""Tokens a second and MFU of our training step on one GPU, beside the same step by hand.

    python benchmarks/gpu_check.py [--layers 20] [--steps 10] [--json]
    python benchmarks/gpu_check.py --device cpu --tiny

A decoder of about one billion random weights in bfloat16 with compiled layers, in less than six
minutes; it needs torch 2.11 or newer and nothing from outside. Both loops run in this process in
turn, so that what else the machine does meets both. Where there is no GPU it says so and ends well;
`--device cpu --tiny` runs the same code at a size for tests. MFU is by the FLOPs of
`cnai.core.shape` (attention over the full square) and the public peak of the device.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from cnai.core.layout import Layout, Memory, ParallelPlan, Sharding, Stage
from cnai.core.shape import DecoderShape
from cnai.core.spec.sections import Train
from cnai.models import Decoder, fill, initial_weights
from cnai.plan import DEVICES
from cnai.train.build import build_decoder
from cnai.train.ranks import joined
from cnai.train.trainer import Trainer, TrainJob

BILLION = DecoderShape(
    layers=20, width=2048, heads=16, kv_heads=8, ffn_width=5632, vocab=32000, sequence=2048,
    tied_head=True,
)  # fmt: skip
TINY = DecoderShape(
    layers=2, width=32, heads=4, kv_heads=2, ffn_width=64, vocab=512, sequence=32, tied_head=True
)
NOTHING = Memory(
    weight_bytes=0, gradient_bytes=0, optimizer_bytes=0, activation_bytes=0, overhead_bytes=0
)
WARM, RATE, CLIP = 3, 1e-4, 1.0

OneStep = Callable[[int], float]


class Rows:
    """Random rows, the same for both loops."""

    def __init__(self, shape: DecoderShape, batch: int) -> None:
        size = (8, batch, shape.sequence + 1)
        self._rows = np.random.default_rng(0).integers(shape.vocab, size=size)
        self._batch = batch

    def rows(self, step: int, first: int, count: int) -> Any:
        """Return rows of a step."""
        return self._rows[step % 8, first : first + count]

    def prefetch(self, step: int, first: int, count: int) -> None:
        """There is nothing to fetch."""

    def validation(self, limit: int | None = None) -> Any:
        """Return rows."""
        return self.rows(0, 0, limit or self._batch)


def ours(shape: DecoderShape, rows: Rows, settings: Train, ranks: Any, plan: Any) -> OneStep:
    """Return our step."""
    job = TrainJob(
        plan=plan, settings=settings, steps=10**9, attempt=0, resume_step=0,
        checkpoint_every=10**9, update_ratio_every=0,
    )  # fmt: skip
    parts = build_decoder(shape, plan, ranks, initial_weights(shape, 0), settings)
    trainer = Trainer(job, ranks, parts)
    return lambda number: trainer.step(number, rows)[0].loss


def by_hand(shape: DecoderShape, rows: Rows, settings: Train, device: torch.device) -> OneStep:
    """Return the step as one writes it with PyTorch alone."""
    module = Decoder(shape)
    fill(module, initial_weights(shape, 0))
    module.to(device)
    if settings.compile:
        for layer in module.layers.values():
            layer.compile()
    rule = torch.optim.AdamW(
        [
            {"params": [p for p in module.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in module.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        lr=RATE,
        betas=(0.9, 0.95),
        fused=True,
    )
    half = settings.precision == "bfloat16"

    def step(number: int) -> float:
        tokens = torch.from_numpy(rows.rows(number, 0, settings.batch)).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            logits = module(tokens[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
            )
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), CLIP, foreach=True)
        rule.step()
        rule.zero_grad()
        return float(loss.detach())

    return step


def measure(steps: dict[str, OneStep], count: int, device: torch.device) -> dict[str, Any]:
    """Run the loops in turn; return the seconds of each step and the last losses."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    losses = dict.fromkeys(steps, math.nan)
    for number in range(WARM + count):
        for name, step in steps.items():
            _wait(device)
            start = time.perf_counter()
            losses[name] = step(number)
            _wait(device)
            if number >= WARM:
                seconds[name].append(time.perf_counter() - start)
    return {"seconds": seconds, "losses": losses}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_flops(device: torch.device) -> float | None:
    """Return the public peak of a device in bfloat16, None when it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).replace(" ", "-")
    known = (one for kind, one in DEVICES.items() if kind.split("-")[0] in name.split("-"))
    found = next(known, None)
    return found.bf16_flops if found else None


def check(arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure both loops and return what was found."""
    base = TINY if arguments.tiny else BILLION
    shape = replace(base, layers=arguments.layers or base.layers)
    settings = Train(
        batch=arguments.batch, learning_rate=RATE, warmup_steps=0, schedule="constant",
        precision="bfloat16", compile=device.type == "cuda" or arguments.compile, clip_norm=CLIP,
    )  # fmt: skip
    stage = Stage(index=0, first_layer=0, end_layer=shape.layers, parameters=0, memory=NOTHING)
    plan = ParallelPlan(
        layout=Layout(), stages=(stage,), microbatches=1, microbatch_rows=settings.batch,
        schedule="1F1B", sharding=Sharding.NONE,
    )  # fmt: skip
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    rows = Rows(shape, settings.batch)
    with joined(
        plan, 0, store=("127.0.0.1", store.port), attempt=0, timeout_seconds=300, tied=True
    ) as ranks:
        found = measure(
            {
                "ours": ours(shape, rows, settings, ranks, plan),
                "by hand": by_hand(shape, rows, settings, device),
            },
            arguments.steps,
            device,
        )
    tokens = settings.batch * shape.sequence
    speed = {name: tokens / statistics.median(one) for name, one in found["seconds"].items()}
    pairs = zip(found["seconds"]["by hand"], found["seconds"]["ours"], strict=True)
    peak = peak_flops(device)
    flops = shape.train_flops_per_token(shape.sequence)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "parameters": shape.parameters,
        "tokens_per_second": speed,
        "ratio": statistics.median(theirs / ours for theirs, ours in pairs),
        "mfu": {name: one * flops / peak for name, one in speed.items()} if peak else None,
        "losses": found["losses"],
    }


def main() -> int:
    """Measure and print; without a GPU say so and end well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a size for tests")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true", help="compile on the CPU too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("there is no GPU here that torch can use; nothing was measured", file=sys.stderr)
        return 0
    found = check(arguments, torch.device(arguments.device))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    print(
        f"{found['device']}, torch {found['torch']}, {found['parameters'] / 1e9:.3f} B parameters"
    )
    for name, speed in found["tokens_per_second"].items():
        mfu = f", MFU {found['mfu'][name]:.1%}" if found["mfu"] else ""
        print(f"{name:<8} {speed:>10.0f} tokens/s{mfu}, loss {found['losses'][name]:.4f}")
    print(f"ours is {found['ratio']:.3f} x by hand (1.0 or more is the goal)")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
