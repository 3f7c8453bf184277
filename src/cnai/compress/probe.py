"""Inputs made up from nothing, to see that a model still runs and gives nearly the same.

They tell whether the file is whole and the arithmetic right. They tell nothing about the accuracy
on real data and are never used to calibrate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.runners import InputSpec, Runner
from cnai.core.errors import RunError

SAMPLES = 16
SIZES = (16, 64, 512)
"""Sizes to try for axes that are free: the smallest that the model runs with is taken."""
_LARGEST_TOKEN = 16
_WORDS = ("def main():", "the cat sat on the mat", "SELECT 1", "", "0.5", "<html></html>")


def made_up(inputs: Sequence[InputSpec], *, size: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return one batch: floats within [0, 1), small whole numbers, short texts.

    Args:
        size: Of axes that are free; the first axis, if free, has `SAMPLES`.
    """
    generator = np.random.default_rng(seed)
    return {one.name: _values(one, size, generator) for one in inputs}


def run_made_up(runner: Runner) -> tuple[dict[str, NDArray[Any]], list[NDArray[Any]]]:
    """Run a model on the smallest made-up inputs that it takes; return these and its outputs.

    Raises:
        RunError: It runs with none.
    """
    *smaller, largest = SIZES
    for size in smaller:
        feeds = made_up(runner.inputs, size=size)
        try:
            return feeds, runner.run(feeds)
        except RunError:
            continue
    feeds = made_up(runner.inputs, size=largest)
    return feeds, runner.run(feeds)


def _values(spec: InputSpec, free: int, generator: np.random.Generator) -> NDArray[Any]:
    shape = tuple(
        size if size is not None else (free if axis else SAMPLES)
        for axis, size in enumerate(spec.shape)
    )
    if spec.dtype == "str":
        return generator.choice(np.array(_WORDS, dtype=object), size=shape or (SAMPLES,))
    if spec.dtype == "bool":
        return np.ones(shape, bool)
    kind = np.dtype(spec.dtype)
    if kind.kind in "iu":
        high = _LARGEST_TOKEN if shape else 2
        return generator.integers(0, high, size=shape).astype(kind)
    return generator.random(size=shape).astype(kind)
