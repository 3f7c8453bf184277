"""Shortest remaining service first: the yardstick that knows the future."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.policies.preemptive import Preemptive
from cnai.schedule.view import ClusterView


def remaining(view: ClusterView, _now: float) -> NDArray[np.float64]:
    """Return the true GPU-seconds left of every job."""
    jobs = view.jobs
    return jobs.oracle_left * jobs.size_milli / 1000.0


def shortest_remaining(quantum_seconds: float = 300.0) -> Preemptive:
    """Make the policy."""
    return Preemptive(ranks=remaining, name="srsf", quantum_seconds=quantum_seconds)
