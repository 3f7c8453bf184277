"""When two specs are the same, and when they only ask for the same work."""

from __future__ import annotations

import hashlib
from typing import Any

from cnai.core.spec.keys import FIELDS
from cnai.core.spec.sections import RunSpec

FREE = (
    "version", "name", "output", "parallel", "resources", "checkpoint", "monitor", "compress",
    "serve", "data.store", "data.endpoint", "train.max_restarts", "train.timeout_seconds",
    "train.evaluate_every", "train.evaluate_sequences", "train.recompute", "train.compile",
    "train.deterministic", "train.elastic", "train.give_up_rank_after", "train.regrow_seconds",
    "train.balance",
)  # fmt: skip
"""Keys that may change while a run goes on: where and how it is done, and what comes after
training (whose stages name their own inputs). The layout too: a run resumes at any."""


def digest(spec: RunSpec) -> str:
    """Return a short hash of all values, defaults included."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:12]


def same_work(a: RunSpec, b: RunSpec) -> list[str]:
    """Return the keys that make the two train different models; empty = the same work."""
    return [key for key in FIELDS if not is_free(key) and value_of(a, key) != value_of(b, key)]


def is_free(key: str) -> bool:
    """Tell whether a key may change while a run goes on."""
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def value_of(spec: RunSpec, key: str) -> Any:
    """Return the value of a dotted key."""
    value: Any = spec
    for part in key.split("."):
        value = getattr(value, part)
    return value
