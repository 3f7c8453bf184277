"""Detectors: one file a detector, one line here."""

from collections.abc import Callable

from cnai.monitor.detectors.detector import Detector, Tick, Watch
from cnai.monitor.detectors.lagging_rank import LaggingRank
from cnai.monitor.detectors.loss_spike import LossSpike
from cnai.monitor.detectors.nonfinite import NonFinite
from cnai.monitor.detectors.stalled import Stalled

DETECTORS: dict[str, Callable[[], Detector]] = {
    NonFinite.name: NonFinite,
    LossSpike.name: LossSpike,
    Stalled.name: Stalled,
    LaggingRank.name: LaggingRank,
}
"""Every detector by name."""

__all__ = ["DETECTORS", "Detector", "Tick", "Watch"]
