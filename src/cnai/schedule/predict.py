"""What is known of how long jobs take: the finished ones, and nothing from the future."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EDGES = np.concatenate([[0.0], 60.0 * 1.5 ** np.arange(0, 40)])
"""Bounds of attained service in GPU-seconds, 60 s to about 20 GPU-years."""


class History:
    """Service that finished jobs took, counted in bins that widen by half each.

    Attributes:
        bounds: Lower bounds of the bins, in GPU-seconds.
    """

    def __init__(self) -> None:
        self.bounds = _EDGES
        self.count = np.zeros(len(_EDGES))
        self.total = np.zeros(len(_EDGES))
        self.finished = 0

    def add(self, gpu_seconds: float) -> None:
        """Count a job that ended."""
        place = int(np.searchsorted(_EDGES, gpu_seconds, side="right")) - 1
        self.count[place] += 1
        self.total[place] += gpu_seconds
        self.finished += 1

    def remaining(self) -> Floats:
        """Return the expected service left of a job that has attained each bound.

        Bounds that no finished job reached continue the last known one in proportion.
        """
        more = np.cumsum(self.count[::-1])[::-1]
        service = np.cumsum(self.total[::-1])[::-1]
        with np.errstate(invalid="ignore", divide="ignore"):
            left = service / more - self.bounds
        known = np.flatnonzero(more >= 5)
        if not known.size:
            return np.asarray(np.maximum(self.bounds, _EDGES[1]), dtype=np.float64)
        last = int(known[-1])
        ratio = max(left[last] / max(self.bounds[last], _EDGES[1]), 0.1)
        left[last + 1 :] = self.bounds[last + 1 :] * ratio
        return np.asarray(np.maximum(left, 1.0), dtype=np.float64)

    def index(self) -> Floats:
        """Return the Gittins index of each bound: the best chance of ending, for the service spent.

        Source: Gittins 1979, "Bandit Processes and Dynamic Allocation Indices"; for jobs with
        several GPUs Gu et al. 2019, "Tiresias" (NSDI).
        """
        bounds = self.bounds
        size = len(bounds)
        more = np.concatenate([np.cumsum(self.count[::-1])[::-1], [0.0]])
        # Expected service up to a bound k, of a job at bound i: all that end later pay the step.
        steps = np.diff(bounds, append=bounds[-1] * 1.5)
        spent = more[:-1] * steps
        best = np.zeros(size)
        for place in range(size):
            if more[place] <= 0:
                best[place] = 1.0 / max(bounds[place], 1.0)
                continue
            ending = more[place] - more[place + 1 :]
            service = np.cumsum(spent[place:])
            best[place] = float((ending / np.maximum(service, 1e-9)).max())
        return best
