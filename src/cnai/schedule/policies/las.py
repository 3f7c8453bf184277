"""Least attained service: who has had least goes first; the yardstick without any knowledge.

Source: Nuyens and Wierman 2008, "The Foreground-Background Queue: A Survey"; for jobs with several
GPUs Gu et al. 2019, "Tiresias: A GPU Cluster Manager for Distributed Deep Learning" (NSDI), which
counts time x GPUs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cnai.schedule.policies.preemptive import Preemptive
from cnai.schedule.view import ClusterView


def attained(view: ClusterView, _now: float) -> NDArray[np.float64]:
    """Return the GPU-seconds that every job has had."""
    return view.jobs.attained


def attained_time(view: ClusterView, _now: float) -> NDArray[np.float64]:
    """Return the seconds that every job has had, whatever its size."""
    jobs = view.jobs
    return np.asarray(jobs.attained * 1000.0 / np.maximum(jobs.size_milli, 1.0))


def least_attained(quantum_seconds: float = 300.0) -> Preemptive:
    """Make the policy that counts GPU-seconds, `las-2d`."""
    return Preemptive(ranks=attained, name="las-2d", quantum_seconds=quantum_seconds)


def least_attained_time(quantum_seconds: float = 300.0) -> Preemptive:
    """Make the policy that counts seconds, `las`."""
    return Preemptive(ranks=attained_time, name="las", quantum_seconds=quantum_seconds)
