"""Watch a run: progress, findings, metrics.

In go the events of a run folder; out come RunProgress for panels, Findings of detectors, and text
for Prometheus. It never changes the run, never imports torch, and a detector that fails is a
finding and not a crash.
"""

from cnai.monitor.detectors import DETECTORS, Detector, Tick, Watch
from cnai.monitor.exporter import MetricsServer, render_serving, render_training, serve_metrics
from cnai.monitor.fold import fold
from cnai.monitor.follow import RunFollower, follow
from cnai.monitor.goodput import Goodput
from cnai.monitor.metrics import METRICS
from cnai.monitor.progress import RankRow, RunProgress, RunState

__all__ = [
    "DETECTORS",
    "METRICS",
    "Detector",
    "Goodput",
    "MetricsServer",
    "RankRow",
    "RunFollower",
    "RunProgress",
    "RunState",
    "Tick",
    "Watch",
    "fold",
    "follow",
    "render_serving",
    "render_training",
    "serve_metrics",
]
