"""How far the outputs of two models lie apart on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import rounding_error

_FEWEST_CLASSES = 2
_PROBABILITY_SLACK = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The outputs before and after, compared.

    Attributes:
        inputs: Where the inputs came from: `data`, or `made up` when there was none.
        runtime: What ran both models.
        samples: Rows compared (the first axis of the first output).
        cosine: Between all outputs before and after.
        relative_error: Norm of the change over norm of the outputs before.
        top1: Share of rows whose largest number is at the same place; None where the output is no
            row of scores.
        kl: Mean Kullback-Leibler divergence in nats, where the outputs are probabilities.
    """

    inputs: str
    runtime: str
    samples: int
    cosine: float
    relative_error: float
    top1: float | None = None
    kl: float | None = None


def agreement_of(
    before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]], *, inputs: str, runtime: str
) -> Agreement:
    """Compare outputs; only those of numbers count, scores are looked for in the first.

    Raises:
        ValueError: The two have not the same outputs or shapes.
    """
    if [one.shape for one in before] != [one.shape for one in after]:
        raise ValueError("the outputs have other shapes than before")
    pairs = [
        (one.astype(np.float64), two.astype(np.float64))
        for one, two in zip(before, after, strict=True)
        if one.dtype.kind in "fiub" and one.size
    ]
    flat = [np.concatenate([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1)]
    error = rounding_error(flat[0], flat[1])
    scores = next((pair for pair in pairs if pair[0].ndim >= 2), None)
    samples = before[0].shape[0] if before and before[0].ndim else 1
    return Agreement(
        inputs=inputs,
        runtime=runtime,
        samples=samples,
        cosine=error.cosine,
        relative_error=error.relative,
        top1=_top1(*scores) if scores else None,
        kl=_divergence(*scores) if scores else None,
    )


def _top1(before: NDArray[np.float64], after: NDArray[np.float64]) -> float | None:
    if before.shape[-1] < _FEWEST_CLASSES:
        return None
    return float((before.argmax(axis=-1) == after.argmax(axis=-1)).mean())


def _divergence(before: NDArray[np.float64], after: NDArray[np.float64]) -> float | None:
    if before.shape[-1] < _FEWEST_CLASSES or not (_sums_to_one(before) and _sums_to_one(after)):
        return None
    tiny = np.finfo(np.float32).tiny
    logs = np.log(np.maximum(before, tiny)) - np.log(np.maximum(after, tiny))
    return float((before * logs).sum(axis=-1).mean())


def _sums_to_one(rows: NDArray[np.float64]) -> bool:
    close = np.abs(rows.sum(axis=-1) - 1) < _PROBABILITY_SLACK
    return bool((rows >= 0).all() and close.all())
