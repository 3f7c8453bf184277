"""Some matrices are not trained, though nobody said so."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding, RankReady
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Speaker, matrices_of

STEPS = 15
STEPS_OF_EXPERTS = 500
"""An expert to which no token goes for a while is not trained for as long."""


class Frozen(Speaker):
    """Speaks when a matrix had no gradient, or no update, for 15 steps in a row, others had one."""

    name: ClassVar[str] = "frozen"

    def __init__(self) -> None:
        super().__init__()
        self._still: Counter[str] = Counter()
        self._declared: tuple[str, ...] = ()

    def _begin(self) -> None:
        self._still.clear()

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, RankReady):
            self._declared = tuple({*self._declared, *event.frozen})
        if not isinstance(event, LayersMeasured):
            return None
        names, gradients = matrices_of(event, "gradient")
        _, updates = matrices_of(event, "update")
        still = (gradients == 0) | (updates == 0)
        if np.isnan(gradients).any() or still.all():
            return None
        for name, is_still in zip(names, still, strict=True):
            self._still[name] = self._still[name] + 1 if is_still else 0
        found = [name for name in names if self._is_frozen(name)]
        if not found:
            return None
        return self._found(
            event,
            event.step,
            f"{len(found)} of {len(names)} matrices are not trained: `{found[0]}`"
            + (" and others" if len(found) > 1 else ""),
            f"no gradient or no update in {STEPS} steps in a row",
            advice=("look for requires_grad, a detach, or a module that is not in the optimizer",),
            layer=found[0],
        )

    def _is_frozen(self, name: str) -> bool:
        needed = STEPS_OF_EXPERTS if "expert" in name else STEPS
        return self._still[name] >= needed and not any(
            fnmatchcase(name, pattern) for pattern in self._declared
        )
