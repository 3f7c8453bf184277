"""Folders of safetensors for tests, of any names and number formats."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

KINDS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def drawn(shape: tuple[int, ...], kind: str = "F32", seed: int = 0) -> np.ndarray:
    """Draw weights, the same ones each time."""
    values = np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32) * 0.05
    return np.asarray(values, KINDS[kind])


def save_shards(folder: Path, shards: list[dict[str, np.ndarray]], **config: object) -> None:
    """Write a folder as `save_pretrained` does: one file, or several and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "foreign", **config}))
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors")
        return
    places = {}
    for at, tensors in enumerate(shards, start=1):
        name = f"model-{at:05}-of-{len(shards):05}.safetensors"
        save_file(tensors, folder / name)
        places |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def layers(first: int, count: int, kind: str = "F32", width: int = 32) -> dict[str, np.ndarray]:
    """Return the tensors of some layers of a model that nobody knows."""
    made = {}
    for layer in range(first, first + count):
        prefix = f"backbone.blocks.{layer}"
        made[f"{prefix}.mixer.in_proj.weight"] = drawn((48, width), kind, seed=layer)
        made[f"{prefix}.mixer.out_proj.weight"] = drawn((width, 48), kind, seed=layer + 99)
        made[f"{prefix}.norm.weight"] = np.ones(width, KINDS[kind])
    return made
