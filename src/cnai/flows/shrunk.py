"""A small copy of a run's layout: the same axes over a few processes, a tiny model, little text."""

from __future__ import annotations

import random
from math import lcm
from pathlib import Path

from cnai.core.layout import ParallelPlan
from cnai.core.schedules import schedule_named
from cnai.core.spec import RunSpec, load_spec
from cnai.plan import PlanRequest

STEPS = 8
SAVE_EVERY = 4
_WIDTH_OF_HEAD = 8
_WORDS = "the cat sat on a mat and ran to see what his dog had found in our old red barn by lake"


def shrunk_layout(request: PlanRequest, plan: ParallelPlan) -> dict[str, object]:
    """Return the section `parallel` of the copy: every axis that is used has two ranks."""
    layout = plan.layout
    model, pipeline = min(2, layout.model), min(2, layout.pipeline)
    context, expert = min(2, layout.context), min(2, layout.expert)
    # A layout that only copies still shows its exchange of gradients.
    data = 2 if layout.data > 1 and (model * pipeline * context < 8 or expert > context) else 1
    schedule = schedule_named(plan.schedule)
    virtual = min(plan.virtual, 2) if pipeline > 1 else None
    pieces = None
    if pipeline > 1:
        pieces = max(2, schedule.fewest(pipeline))
    split = 0
    if layout.model > 1 and layout.split_layer:
        split = 1 if layout.split_layer < (request.shape.layers if request.shape else 1) else 10**6
    return {
        "data_parallel": {"size": data, "sharding": plan.sharding.value if data * context > 1
                          else "none"},
        "model_parallel": {"size": model, "split_layer": min(split, _layers(pipeline, virtual)),
                           "sequence": layout.split_sequence and model > 1},
        "context_parallel": {"size": context},
        "expert_parallel": {"size": expert if data * context % expert == 0 else 1},
        "pipeline_parallel": {"stages": pipeline, "schedule": plan.schedule if pipeline > 1
                              else "1F1B", "virtual": virtual, "microbatches": pieces},
    }  # fmt: skip


def _layers(pipeline: int, virtual: int | None) -> int:
    return max(2, 2 * pipeline * (virtual or 1))


def shrunk(
    spec: RunSpec, request: PlanRequest, parallel: dict[str, object] | None, folder: Path, name: str
) -> RunSpec:
    """Return the spec of a small copy.

    Args:
        parallel: Its layout; None = a single process.
        folder: Where its runs lie; it holds the text too.
        name: Of the run.
    """
    shape = request.shape
    stages = 2 if request.pipeline != 1 else 1
    few = shape is not None and shape.kv_heads < shape.heads
    heads = lcm(8, 2)
    model: dict[str, object] = {
        "layers": _layers(stages, request.virtual), "width": heads * _WIDTH_OF_HEAD,
        "heads": heads, "kv_heads": 4 if few else heads, "ffn_width": 96, "vocab": 320,
        "sequence": 32,
    }  # fmt: skip
    if shape is not None:
        model |= {
            "tied_head": shape.tied_head, "attention_bias": shape.attention_bias,
            "qk_norm": shape.qk_norm,
        }  # fmt: skip
        if shape.experts:
            model |= {"experts": 4, "experts_per_token": 2, "expert_width": 32}
    one = {"data_parallel": {"size": 1}, "model_parallel": {"size": 1},
           "pipeline_parallel": {"stages": 1}}  # fmt: skip
    train = spec.train
    return load_spec({
        "version": 1, "name": name, "output": str(folder), "model": model,
        "data": {"source": str(texts(folder)), "validation_fraction": 0.1, "block_rows": 32},
        "parallel": parallel or one,
        "train": {"steps": STEPS, "batch": 8, "warmup_steps": 2, "learning_rate": 3e-3,
                  "optimizer": train.optimizer, "recompute": request.recompute,
                  "timeout_seconds": 60},
        "checkpoint": {"every_steps": SAVE_EVERY, "keep": 4, "mode": "sync"},
    }, user_config=None).spec  # fmt: skip


def texts(folder: Path) -> Path:
    """Write sentences of known words, the same each time, and return where they lie."""
    source = folder / "texts"
    source.mkdir(parents=True, exist_ok=True)
    dice = random.Random(0)  # noqa: S311 - words, not secrets
    for number in range(40):
        lines = (" ".join(dice.choices(_WORDS.split(), k=dice.randint(4, 9))) for _ in range(12))
        (source / f"{number}.txt").write_text(". ".join(lines) + ".\n", encoding="utf-8")
    return source
