"""A large folder made INT8 by the real command: speed a core, peak memory, and a resume.

    python benchmarks/quantize_large.py [--gb 20] [--folder PLACE]

Random bfloat16 weights of a Llama are written as shards into a temporary folder, which needs about
2.2 times their size. `ai-cli quantize --unmeasured` is run twice: once through, once killed with
SIGKILL after half of the files and run again. Printed is one JSON object: MB of the source a second
of processor time and of wall time, the peak of the process's memory, what the resumed run did not
have to do again, and whether both results are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

WIDTH, FFN, VOCAB = 4096, 11_008, 32_000
_POOL = 1 << 24


def write_model(folder: Path, wanted_bytes: float) -> int:
    """Write shards of one layer each until the size is reached; return the bytes."""
    folder.mkdir()
    pool = (np.random.default_rng(0).standard_normal(_POOL) * 0.02).astype(ml_dtypes.bfloat16)
    shards: list[dict[str, tuple[int, ...]]] = [{"model.embed_tokens.weight": (VOCAB, WIDTH)}]
    layer = {
        **{f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"},
        "mlp.gate_proj": (FFN, WIDTH), "mlp.up_proj": (FFN, WIDTH), "mlp.down_proj": (WIDTH, FFN),
        "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,),
    }  # fmt: skip
    size = 2 * sum(int(np.prod(shape)) for shape in layer.values())
    count = max(2, round(wanted_bytes / size))
    shards.extend(
        {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
        for index in range(count)
    )
    places = {}
    for number, shapes in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: filled(pool, shape, number) for name, shape in shapes.items()}
        save_file(tensors, folder / file)
        places |= dict.fromkeys(shapes, file)
    config = {
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": FFN, "dtype": "bfloat16",
        "num_hidden_layers": count, "num_attention_heads": 32, "vocab_size": VOCAB,
        "tie_word_embeddings": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def filled(pool: np.ndarray, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return numbers of the pool, from another place for each seed."""
    return np.resize(np.roll(pool, 7919 * seed), shape)


def start(source: Path, target: Path) -> subprocess.Popen[bytes]:
    """Start the command that a user types, on one core."""
    words = [
        sys.executable, "-m", "cnai", "quantize", "--input_model", str(source),
        "--output_model", str(target), "--unmeasured", "--json",
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def ended(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Wait for a process; return its seconds and its peak memory."""
    begun, peak, done = time.monotonic(), 0.0, 0
    while not done:
        # What the system keeps of an ended process counts its parent's memory before the start.
        peak = max(peak, peak_mib(process.pid))
        time.sleep(0.05)
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "wall_s": time.monotonic() - begun,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mib": peak,
        "exit": process.returncode,
    }


def peak_mib(pid: int) -> float:
    """Return the most memory that a running process has held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def killed_at_half(source: Path, target: Path, files: int) -> int:
    """Kill a run once half of the files are finished; return how many were."""
    process = start(source, target)
    journal = target.with_name(f".{target.name}.journal.json")
    while process.poll() is None and finished(journal) < files // 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return finished(journal)


def finished(journal: Path) -> int:
    """Return how many files a journal names."""
    return len(json.loads(journal.read_text())["shards"]) if journal.is_file() else 0


def sums(target: Path) -> dict[str, str]:
    """Return the checksums of the weights of an artifact."""
    files = json.loads((target / "manifest.json").read_text())["files"]
    return {one["name"]: one["sha256"] for one in files if one["name"].endswith(".safetensors")}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--gb", type=float, default=20.0, help="size of the model, 1e9 bytes")
    parser.add_argument("--folder", type=Path, help="where to work; else the temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cnai-large-", dir=arguments.folder) as place:
        source, whole, again = (Path(place) / name for name in ("model", "whole", "again"))
        size = write_model(source, arguments.gb * 1e9)
        files = len(list(source.glob("*.safetensors")))
        first = ended(start(source, whole))
        kept = killed_at_half(source, again, files)
        second = ended(start(source, again))
        found: dict[str, Any] = {
            "gb": size / 1e9,
            "files": files,
            "mb_per_core_second": size / 1e6 / first["cpu_s"],
            "mb_per_second": size / 1e6 / first["wall_s"],
            "peak_mib": first["peak_mib"],
            "times_smaller": size / sum(f.stat().st_size for f in whole.glob("*.safetensors")),
            "resumed_after_files": kept,
            "resume_cpu_share": second["cpu_s"] / first["cpu_s"],
            "same_result": sums(whole) == sums(again),
            "exits": [first["exit"], second["exit"]],
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
