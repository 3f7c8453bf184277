"""How even the ranks' work is when documents do not see each other, dealt out or as it comes.

    python benchmarks/documents.py [--steps 6] [--ranks 4] [--sequence 2048]

Documents have lognormal lengths (median 200 tokens, sigma 1.6: many short, few very long) and are
packed and read by the data room. One decoder layer computes each data rank's rows of a step in this
one process, forward and backward, so that CPU seconds count and not who waits. A step is as slow as
its slowest rank: printed is slowest over mean, for both orders, of the counted work and of the
measured CPU seconds, the ratio of the slowest rank's CPU seconds (dealt out over as it comes), and
CPU seconds of all rows with documents apart over joined.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cnai.core.shape import DecoderShape
from cnai.data import DatasetReader, PrepareOptions, open_store, prepare
from cnai.data.work import work_of
from cnai.models import Decoder, fill, initial_weights, token_loss
from cnai.train.batch import batch_of

MEDIAN, SIGMA, DOCUMENTS, ROWS = 200, 1.6, 1500, 8


def seconds_of(model: Decoder, rows: NDArray[np.int64], separator: int | None) -> float:
    """Return the CPU seconds of forward and backward of rows, one by one."""
    start = time.process_time()
    for piece in batch_of(rows, separator=separator).pieces(1):
        assert piece.target is not None
        token_loss(model(*piece.inputs, **piece.everywhere), piece.target).backward()
    return time.process_time() - start


def texts(folder: Path) -> Path:
    """Write documents of very different lengths, a line each."""
    draw = np.random.default_rng(0)
    words = ["alpha", "beta", "gamma", "delta", "eta", "theta", "iota", "kappa", "mu", "nu"]
    lengths = draw.lognormal(np.log(MEDIAN), SIGMA, DOCUMENTS).astype(int).clip(2, 20_000)
    lines = (json.dumps({"text": " ".join(draw.choice(words, size))}) for size in lengths)
    file = folder / "texts.jsonl"
    file.write_text("\n".join(lines))
    return file


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=2048)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"file://{folder}/store")
        options = PrepareOptions(vocab=300, sequence=asked.sequence, block_rows=32)
        manifest = prepare(
            str(texts(Path(folder))), store, options=options, progress=lambda *_: None
        )
        print(json.dumps(measured(asked, store, manifest, Path(folder)), indent=2))


def measured(asked: argparse.Namespace, store: Any, manifest: Any, folder: Path) -> dict[str, Any]:
    """Run the steps in both orders, interleaved."""
    shape = DecoderShape(
        layers=1, width=64, heads=4, kv_heads=4, ffn_width=64, vocab=manifest.vocab,
        sequence=asked.sequence, tied_head=True,
    )  # fmt: skip
    model = Decoder(shape)
    fill(model, initial_weights(shape, 0))
    batch = asked.ranks * ROWS
    orders = {"as it comes": (), "dealt out": (ROWS, 1)}
    work: dict[str, list[list[float]]] = {name: [] for name in orders}
    cpu: dict[str, list[list[float]]] = {name: [] for name in orders}
    joined = 0.0
    for step in range(asked.steps):
        for name, groups in orders.items():
            reader = DatasetReader(
                store, manifest, folder / "cache", batch=batch, seed=0, groups=groups
            )
            shares = [reader.rows(step, rank * ROWS, ROWS) for rank in range(asked.ranks)]
            separator = manifest.separator
            work[name].append([float(work_of(one[:, :-1], separator).sum()) for one in shares])
            cpu[name].append([seconds_of(model, one, separator) for one in shares])
            if groups:
                joined += sum(seconds_of(model, one, None) for one in shares)
    slowest = {name: sum(max(step) for step in steps) for name, steps in cpu.items()}
    apart = sum(sum(step) for step in cpu["dealt out"])
    return {
        "rows": manifest.train_rows,
        "work_slowest_over_mean": {name: _spread(steps) for name, steps in work.items()},
        "cpu_slowest_over_mean": {name: _spread(steps) for name, steps in cpu.items()},
        "slowest_rank_ratio": round(slowest["dealt out"] / slowest["as it comes"], 3),
        "apart_over_joined": round(apart / joined, 3),
    }


def _spread(steps: list[list[float]]) -> float:
    return round(sum(max(one) for one in steps) / sum(sum(one) / len(one) for one in steps), 3)


if __name__ == "__main__":
    main()
