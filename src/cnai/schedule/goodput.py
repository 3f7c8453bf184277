"""How fast a job learns with a number of workers.

Source: Qiao et al. 2021, "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
Learning" (OSDI): goodput is throughput times statistical efficiency, the efficiency of a batch
following from the gradient noise scale (McCandlish et al. 2018, "An Empirical Model of Large-Batch
Training").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Curve:
    """Speed of a job by number of workers, in any unit of work a second.

    Attributes:
        speeds: Workers to speed, as measured or modelled; only these sizes are used.
    """

    speeds: tuple[tuple[int, float], ...]

    @cached_property
    def table(self) -> dict[int, float]:
        """The same as a dict."""
        return dict(self.speeds)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of workers of use, each faster than all smaller ones."""
        best = 0.0
        found = []
        for size, speed in sorted(self.speeds):
            if speed > best:
                found.append(size)
                best = speed
        return tuple(found)

    def speed(self, workers: int) -> float:
        """Return the speed at a size; between known sizes on a straight line."""
        known = self.table.get(workers)
        if known is not None:
            return known
        below = [pair for pair in self.speeds if pair[0] < workers]
        above = [pair for pair in self.speeds if pair[0] > workers]
        if not below:
            size, speed = min(above)
            return speed * workers / size
        if not above:
            return max(below)[1]
        (low, slow), (high, fast) = max(below), min(above)
        return slow + (fast - slow) * (workers - low) / (high - low)


def curve_of(speeds: Mapping[int, float]) -> Curve:
    """Make a curve of measured speeds; sizes with a speed of zero cannot run and are left out."""
    return Curve(tuple(sorted((size, speed) for size, speed in speeds.items() if speed > 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Time of a step by workers and batch; the two parts overlap to a degree.

    Attributes:
        compute_seconds: Fixed time of a step.
        row_seconds: Time of one sequence on one worker.
        sync_seconds: Time to agree on gradients as soon as there are two workers.
        link_seconds: What each further worker adds to it.
        overlap: 1 means compute and agreement follow each other, large means that the longer hides
            the shorter.
        noise_scale: Gradient noise scale in sequences, as the recorder of a run measures it.
        base_batch: Batch at which a sequence counts fully.
    """

    compute_seconds: float
    row_seconds: float
    sync_seconds: float = 0.0
    link_seconds: float = 0.0
    overlap: float = 1.0
    noise_scale: float = 0.0
    base_batch: int = 1

    def step_seconds(self, workers: int, batch: int) -> float:
        """Return the time of a step."""
        compute = self.compute_seconds + self.row_seconds * batch / workers
        extra = self.link_seconds * max(workers - 2, 0)
        sync = 0.0 if workers == 1 else self.sync_seconds + extra
        return float((compute**self.overlap + sync**self.overlap) ** (1 / self.overlap))

    def efficiency(self, batch: int) -> float:
        """Return how much a sequence of a batch teaches, over one of the base batch."""
        return (self.noise_scale + self.base_batch) / (self.noise_scale + batch)

    def goodput(self, workers: int, batch: int) -> float:
        """Return sequences a second, counted at what they teach."""
        return batch / self.step_seconds(workers, batch) * self.efficiency(batch)

    def curve(self, sizes: tuple[int, ...], batches: tuple[int, ...]) -> Curve:
        """Return the best goodput of each size over the allowed batches."""
        return curve_of(
            {size: max(self.goodput(size, batch) for batch in batches) for size in sizes}
        )
