"""Made-up records of layers for tests of detectors."""

from __future__ import annotations

import math

import numpy as np

from cnai.core.events import RankMeasured, RankReady
from cnai.core.vectors import Columns, LayersMeasured

NAMES = ("embedding.weight", "layers.0.w.weight", "layers.1.w.weight", "layers.1.w.bias",
         "head.weight")  # fmt: skip
MATRICES = tuple((name, 100) for name in NAMES if not name.endswith("bias"))
GROUPS = (
    ("gradient", NAMES), ("update", NAMES), ("weight", NAMES), ("dead", ("layers.0.act",)),
    ("saturated", ("layers.0.act",)), ("entropy", ("layers.0", "layers.1")), ("log_z", ("head",)),
    ("rows_used", ("embedding",)), ("ids_a_row", ("embedding",)),
)  # fmt: skip
HEALTHY = {"gradient": 0.1, "update": 1e-3, "weight": 1.0}


def layers(step, *, attempt=0, **changes):
    """Return a healthy record; a change is a number for the whole group, or a dict by member."""
    values = []
    for group, members in GROUPS:
        asked = changes.get(group, HEALTHY.get(group, math.nan))
        for name in members:
            plain = HEALTHY.get(group, math.nan)
            values.append(asked.get(name, plain) if isinstance(asked, dict) else asked)
    return LayersMeasured(
        time_unix=float(step), attempt=attempt, step=step, columns=Columns(GROUPS, MATRICES),
        values=np.array(values, dtype=np.float32),
    )  # fmt: skip


def measured(step, *, rank=0, attempt=0, **changes):
    """Return what a rank says of itself."""
    return RankMeasured(time_unix=float(step), rank=rank, attempt=attempt, step=step, **changes)


def ready(*frozen):
    return RankReady(time_unix=0.0, rank=0, attempt=0, pid=1, host="h", parameters=9, frozen=frozen)
