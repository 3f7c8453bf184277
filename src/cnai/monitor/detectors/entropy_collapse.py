"""Attention looks at one token alone.

Source: Zhai et al. 2023, "Stabilizing Transformer Training by Preventing Attention Entropy
Collapse", arXiv 2303.06296: low entropy comes before divergence.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cnai.core.events import Event, Finding
from cnai.core.vectors import LayersMeasured
from cnai.monitor.detectors.speaker import Run, Speaker

ENTROPY = 0.12
"""Share of the largest possible entropy, mean over the heads of a layer."""
MEASUREMENTS = 3


class EntropyCollapse(Speaker):
    """Speaks when the layer with the least entropy is below 0.12 three times in a row."""

    name: ClassVar[str] = "entropy_collapse"

    def __init__(self) -> None:
        super().__init__()
        self._low = Run(MEASUREMENTS)

    def _begin(self) -> None:
        self._low.is_long(seen=False)

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, LayersMeasured):
            return None
        entropy = event.group("entropy")
        if not len(entropy) or np.isnan(entropy).all():
            return None
        at = int(np.nanargmin(entropy))
        if not self._low.is_long(float(entropy[at]) < ENTROPY):
            return None
        name = event.names("entropy")[at]
        return self._found(
            event,
            event.step,
            f"the attention of `{name}` has {entropy[at]:.0%} of its largest entropy",
            f"below {ENTROPY:.0%} in {MEASUREMENTS} measurements in a row",
            advice=("norm queries and keys (qk_norm)", "lower train.learning_rate"),
            layer=name,
        )
