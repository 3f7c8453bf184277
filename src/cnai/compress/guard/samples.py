"""Samples to calibrate and to measure on: divided, drawn, and joined to batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.runners import InputSpec

_FEWEST_TO_SPLIT = 2
MOST_TO_CALIBRATE = 128
_SHARE_TO_CALIBRATE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """What a model is given at once, and what should come out.

    Attributes:
        feeds: Arrays by input, exactly as the model takes them; usually one row each.
        label: None where there is none.
    """

    feeds: Mapping[str, NDArray[Any]]
    label: Any = None


def split(
    samples: Sequence[Sample], *, seed: int
) -> tuple[tuple[Sample, ...], tuple[Sample, ...], bool]:
    """Divide one set into samples to calibrate on and samples to judge by.

    Returns:
        Both, and whether they are apart; a single sample has to serve for both.
    """
    if len(samples) < _FEWEST_TO_SPLIT:
        return tuple(samples), tuple(samples), False
    count = min(MOST_TO_CALIBRATE, max(1, round(_SHARE_TO_CALIBRATE * len(samples))))
    order = np.random.default_rng(seed).permutation(len(samples))
    chosen = set(order[:count].tolist())
    both = [[], []]  # type: list[list[Sample]]
    for index, one in enumerate(samples):
        both[index not in chosen].append(one)
    return tuple(both[0]), tuple(both[1]), True


def drawn(samples: Sequence[Sample], count: int, *, seed: int) -> tuple[Sample, ...]:
    """Return some of the samples, in their order."""
    if len(samples) <= count:
        return tuple(samples)
    order = np.random.default_rng(seed).permutation(len(samples))[:count]
    return tuple(samples[index] for index in sorted(order))


def batched(
    samples: Sequence[Sample], inputs: Sequence[InputSpec], size: int
) -> Iterator[tuple[dict[str, NDArray[Any]], int]]:
    """Join samples of one shape where the model's first axis is free.

    Yields:
        Inputs for one run, and how many samples they hold.
    """
    free = all(one.shape and one.shape[0] is None for one in inputs)
    waiting: list[Mapping[str, NDArray[Any]]] = []
    for one in samples:
        alike = waiting and all(
            waiting[0][name].shape[1:] == values.shape[1:] for name, values in one.feeds.items()
        )
        single = free and all(values.shape[0] == 1 for values in one.feeds.values())
        if waiting and not (alike and single and len(waiting) < size):
            yield _joined(waiting), len(waiting)
            waiting = []
        if single:
            waiting.append(one.feeds)
        else:
            yield dict(one.feeds), 1
    if waiting:
        yield _joined(waiting), len(waiting)


def _joined(feeds: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([one[name] for one in feeds]) for name in feeds[0]}
