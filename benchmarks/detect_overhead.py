"""What the probe costs: the same steps bare and watched, interleaved in one process.

    python benchmarks/detect_overhead.py --tokens 2048

Each variant has a model and an optimizer of its own; they take turns, so that what else runs on the
machine hits all alike. The figures are medians of CPU time over that of the bare step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.nn import functional as F  # noqa: N812

from cnai.core.shape import DecoderShape
from cnai.models import Decoder
from cnai.train.probe import Probe
from cnai.train.probe_trainer import ProbeSettings

VARIANTS = {
    "bare": None,
    "gradients, weights, updates": ProbeSettings(activations_every=0, ranks_every=0),
    "and activations every 10 steps": ProbeSettings(ranks_every=0),
    "and ranks every 10 steps": ProbeSettings(),
}


def variant(shape: DecoderShape, settings: ProbeSettings | None) -> Callable[[torch.Tensor], None]:
    """Return what does a step."""
    torch.manual_seed(0)
    model = Decoder(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    probe = None
    if settings is not None:
        probe = Probe(model, optimizer, into=lambda _event: None, settings=settings)

    def step(rows: torch.Tensor) -> None:
        if probe is not None and settings is not None and settings.ranks_every:
            probe.saw(rows)
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if probe is not None:
            probe.done(loss)
        optimizer.zero_grad()

    return step


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=40, help="steps of each variant")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens in a step")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    shape = DecoderShape(
        layers=8, width=asked.width, heads=4, kv_heads=4, ffn_width=3 * asked.width, vocab=1024,
        sequence=128, tied_head=False,
    )  # fmt: skip
    steps = {name: variant(shape, settings) for name, settings in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(asked.steps):
        rows = torch.randint(shape.vocab, (max(1, asked.tokens // 128), 129))
        for name, step in steps.items():
            start = time.process_time()
            step(rows)
            seconds[name].append(time.process_time() - start)
    bare = seconds["bare"][2:]
    # Every tenth step costs more, so means are compared too: of the pairs, each with its own bare.
    report = {
        name: {
            "median": median(a / b for a, b in zip(taken[2:], bare, strict=True)),
            "total": sum(taken[2:]) / sum(bare),
        }
        for name, taken in seconds.items()
    }
    if asked.json:
        print(json.dumps({"bare_seconds": median(bare), "ratios": report}))
        return 0
    print(f"bare step {median(bare):.3f} s of CPU time, {shape.parameters:,} parameters")
    for name, one in report.items():
        print(f"{name:32} median {one['median']:.3f}, total {one['total']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
