"""Detectors: one file a detector, one line here."""

from collections.abc import Callable

from cnai.monitor.detectors.causes import CAUSES, Resolver, primary
from cnai.monitor.detectors.chance import Chance
from cnai.monitor.detectors.copies import Desync, ReplicaMismatch
from cnai.monitor.detectors.dead_units import DeadUnits
from cnai.monitor.detectors.decay_blowup import DecayBlowup
from cnai.monitor.detectors.detector import Detector, Tick, Watch
from cnai.monitor.detectors.entropy_collapse import EntropyCollapse
from cnai.monitor.detectors.exploding import Exploding
from cnai.monitor.detectors.frozen import Frozen
from cnai.monitor.detectors.lagging_rank import LaggingRank
from cnai.monitor.detectors.logit_drift import LogitDrift
from cnai.monitor.detectors.loss_spike import LossSpike
from cnai.monitor.detectors.memory_leak import MemoryLeak
from cnai.monitor.detectors.mode_mixup import ModeMixup
from cnai.monitor.detectors.nonfinite import NonFinite
from cnai.monitor.detectors.optimizer_lost import OptimizerLost
from cnai.monitor.detectors.overfit import Overfit
from cnai.monitor.detectors.plateau import Plateau
from cnai.monitor.detectors.rate_high import RateHigh
from cnai.monitor.detectors.rate_low import RateLow
from cnai.monitor.detectors.repeated_data import RepeatedData
from cnai.monitor.detectors.saturation import Saturation
from cnai.monitor.detectors.schedule_reset import ScheduleReset
from cnai.monitor.detectors.slow_data import SlowData
from cnai.monitor.detectors.stalled import Stalled
from cnai.monitor.detectors.unequal_steps import UnequalSteps
from cnai.monitor.detectors.unused_rows import UnusedRows
from cnai.monitor.detectors.vanishing import Vanishing
from cnai.monitor.detectors.wrong_sign import WrongSign

DETECTORS: dict[str, Callable[[], Detector]] = {
    kind.name: kind
    for kind in (
        NonFinite,
        RateHigh,
        RateLow,
        ScheduleReset,
        OptimizerLost,
        DecayBlowup,
        WrongSign,
        Exploding,
        Vanishing,
        DeadUnits,
        Saturation,
        Frozen,
        EntropyCollapse,
        LogitDrift,
        UnusedRows,
        Chance,
        RepeatedData,
        ReplicaMismatch,
        Desync,
        SlowData,
        MemoryLeak,
        UnequalSteps,
        ModeMixup,
        Overfit,
        Plateau,
        LossSpike,
        Stalled,
        LaggingRank,
    )
}
"""Every detector by name."""

__all__ = ["CAUSES", "DETECTORS", "Detector", "Resolver", "Tick", "Watch", "primary"]
