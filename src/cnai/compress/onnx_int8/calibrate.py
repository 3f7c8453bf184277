"""What the tensors of a model hold on real data: their ranges, and percentiles of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[Any]]

BINS = 2048
_FATAL = 4
_AT_ONCE = 96
"""Tensors fetched in one run; all of a large model at once would fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Histogram:
    """Counts of numbers between the smallest and the largest one."""

    low: float
    high: float
    counts: NDArray[np.int64]

    def between(self, share: float) -> tuple[float, float]:
        """Return the ends that cut off half of the numbers outside `share` at each side."""
        total = self.counts.sum()
        if total == 0 or self.high <= self.low:
            return self.low, self.high
        edges = np.linspace(self.low, self.high, len(self.counts) + 1)
        summed = np.cumsum(self.counts)
        outside = (1 - share) / 2 * total
        first = int(np.searchsorted(summed, outside, side="right"))
        last = int(np.searchsorted(summed, total - outside, side="left"))
        return float(edges[min(first, len(edges) - 2)]), float(edges[min(last + 1, len(edges) - 1)])


@dataclass(slots=True, kw_only=True)
class Ranges:
    """Ranges of the tensors that held finite 32-bit floats.

    Attributes:
        ends: The smallest and the largest number of each tensor.
        samples: Runs of the model that they come from.
    """

    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0
    _histograms: dict[str, _Histogram] = field(default_factory=dict)

    def narrowed(self, share: float) -> Ranges:
        """Return ranges that hold only this share of the numbers, for tensors with outliers."""
        ends = {
            name: self._histograms[name].between(share) if name in self._histograms else both
            for name, both in self.ends.items()
        }
        return Ranges(ends=ends, samples=self.samples)


def calibrate(model: Any, tensors: Iterable[str], batches: Sequence[Feeds]) -> Ranges:
    """Run a model on real inputs and keep what its tensors held.

    Two passes: the first finds the ends, the second counts between them.

    Args:
        model: As `prepare` returns it.
        tensors: Names of inputs and intermediate tensors of the main graph.

    Raises:
        Exception: Whatever ONNX Runtime says when it cannot run the model.
    """
    found = Ranges(samples=len(batches))
    inputs = {one.name for one in model.graph.input}
    names = list(dict.fromkeys(tensors))
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        run = _reader(model, [name for name in some if name not in inputs])
        _each(run, some, batches, lambda name, values: _widen(found, name, values))
        for name in some:
            if not np.isfinite(found.ends.get(name, 0.0)).all():
                del found.ends[name]
        _each(run, some, batches, lambda name, values: _count(found, name, values))
    return found


def _reader(model: Any, names: list[str]) -> Callable[[Feeds], dict[str, NDArray[Any]]]:
    """Return a function that runs the model and gives the tensors of those names."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    present = {one.name for one in wide.graph.output}
    wide.graph.output.extend(onnx.ValueInfoProto(name=one) for one in names if one not in present)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = 1
    # The tensors must be those of the model, not of what the runtime makes of it.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        wide.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )

    def run(feeds: Feeds) -> dict[str, NDArray[Any]]:
        # An empty list of names would ask for all outputs.
        found = session.run(names, dict(feeds)) if names else []
        return {**feeds, **dict(zip(names, found, strict=True))}

    return run


def _each(
    run: Callable[[Feeds], dict[str, NDArray[Any]]],
    names: Sequence[str],
    batches: Sequence[Feeds],
    visit: Callable[[str, NDArray[np.float32]], None],
) -> None:
    for feeds in batches:
        values = run(feeds)
        for name in names:
            array = np.asarray(values[name])
            if array.dtype == np.float32 and array.size:
                visit(name, array)


def _widen(found: Ranges, name: str, values: NDArray[np.float32]) -> None:
    before = found.ends.get(name, (np.inf, -np.inf))
    low, high = np.minimum(values.min(), before[0]), np.maximum(values.max(), before[1])
    found.ends[name] = (float(low), float(high))


def _count(found: Ranges, name: str, values: NDArray[np.float32]) -> None:
    if name not in found.ends:
        return
    low, high = found.ends[name]
    if high <= low:
        return
    counts = np.histogram(values, BINS, (low, high))[0].astype(np.int64)
    before = found._histograms.get(name)
    total = counts if before is None else before.counts + counts
    found._histograms[name] = _Histogram(low=low, high=high, counts=total)
