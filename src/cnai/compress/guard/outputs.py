"""The outputs of two models on one sample, compared in the ways that the verdict needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = Mapping[str, NDArray[Any]]

_FEWEST_CLASSES = 2
_SLACK = 1e-3
_OFFSET = 0.9
"""Share of the outputs' energy in their mean above which only the rest is compared."""
_FEWEST_FOR_MEAN = 8
_TINY = float(np.finfo(np.float32).tiny)


class Kind(StrEnum):
    """What the first output of floats means, judged by its numbers."""

    PROBABILITIES = "probabilities"
    DECISIONS = "decisions"
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One sample, before and after.

    Attributes:
        cosine: Between all outputs.
        change: Squared norm of the change of all outputs.
        energy: Squared norm of the outputs before.
        same: Share of places with the same first choice; NaN where outputs are no choices.
        kl: Divergence in nats; NaN where outputs are no probabilities.
        own: Probability of the source's own choice; NaN where there are no probabilities.
        kept: Probability that the source gives to the new model's choice.
        finite: Whether every number is finite that was before.
    """

    cosine: float
    change: float
    energy: float
    same: float
    kl: float
    own: float
    kept: float
    finite: bool


def floats_of(outputs: Outputs) -> list[NDArray[np.float64]]:
    """Return the outputs of numbers that can be compared, in float64."""
    return [one.astype(np.float64) for one in outputs.values() if one.dtype.kind == "f"]


def kind_of(samples: list[Outputs]) -> Kind:
    """Tell what the first output of floats is."""
    first = [next(iter(floats_of(one)), None) for one in samples]
    if not first or any(one is None or one.ndim == 0 or not one.size for one in first):
        return Kind.NUMBERS
    arrays = [one for one in first if one is not None]
    if all(one.shape[-1] >= _FEWEST_CLASSES and one.ndim > 1 and _is_sure(one) for one in arrays):
        return Kind.PROBABILITIES
    single = all(one.shape[-1] == 1 and ((one >= 0) & (one <= 1)).all() for one in arrays)
    return Kind.DECISIONS if single else Kind.NUMBERS


def _is_sure(rows: NDArray[np.float64]) -> bool:
    return bool((rows >= -_SLACK).all() and (np.abs(rows.sum(axis=-1) - 1) < _SLACK).all())


def offset_of(samples: list[Outputs]) -> NDArray[np.float64] | None:
    """Return the mean of the outputs where it is most of them, else None.

    The cosine of outputs around 1000 that vary by 1 would be 1 for a model that answers 1000.
    """
    flat = [_flat(floats_of(one)) for one in samples]
    if len(flat) < _FEWEST_FOR_MEAN or len({one.size for one in flat}) != 1 or not flat[0].size:
        return None
    stacked = np.stack(flat)
    mean: NDArray[np.float64] = stacked.mean(axis=0)
    energy = float(np.square(stacked).mean(axis=0).sum())
    return mean if energy and float(np.square(mean).sum()) > _OFFSET * energy else None


def _flat(arrays: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([one.reshape(-1) for one in arrays]) if arrays else np.zeros(0)


def compare(
    before: Outputs, after: Outputs, kind: Kind, offset: NDArray[np.float64] | None = None
) -> Compared:
    """Compare the outputs of one sample."""
    old, new = floats_of(before), floats_of(after)
    one, two = _flat(old), _flat(new)
    sound = np.isfinite(one)
    finite = one.shape == two.shape and bool(np.isfinite(two[sound]).all())
    if not finite:
        nan = float("nan")
        return Compared(
            cosine=nan, change=nan, energy=nan, same=nan, kl=nan, own=nan, kept=nan, finite=False
        )
    if offset is not None:
        one, two = one - offset, two - offset
    one, two = one[sound], two[sound]
    same = _same_choice(old, new, before, after, kind)
    kl, own, kept = _probabilities(old[0], new[0]) if kind is Kind.PROBABILITIES else (np.nan,) * 3
    return Compared(
        cosine=_cosine(one, two),
        change=float(np.square(two - one).sum()),
        energy=float(np.square(one).sum()),
        same=same,
        kl=float(kl),
        own=float(own),
        kept=float(kept),
        finite=True,
    )


def _cosine(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    length = float(np.linalg.norm(one) * np.linalg.norm(two))
    if length:
        return float(one @ two) / length
    return float(not one.any() and not two.any())


def _same_choice(
    old: list[NDArray[np.float64]],
    new: list[NDArray[np.float64]],
    before: Outputs,
    after: Outputs,
    kind: Kind,
) -> float:
    if kind is Kind.PROBABILITIES:
        return float((old[0].argmax(axis=-1) == new[0].argmax(axis=-1)).mean())
    if kind is Kind.DECISIONS:
        return float(((old[0] > 0.5) == (new[0] > 0.5)).mean())
    whole = [
        (one, after[name])
        for name, one in before.items()
        if one.dtype.kind != "f" and one.size and one.shape == after[name].shape
    ]
    if old or not whole:
        return float("nan")
    # Only choices come out, no numbers.
    return float(np.mean([float((one == two).mean()) for one, two in whole]))


def _probabilities(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, float, float]:
    one, two = np.maximum(before, 0), np.maximum(after, 0)
    logs = np.log(np.maximum(one, _TINY)) - np.log(np.maximum(two, _TINY))
    choice = two.argmax(axis=-1)[..., None]
    kept = np.take_along_axis(one, choice, axis=-1)
    return (
        float((one * logs).sum(axis=-1).mean()),
        float(one.max(axis=-1).mean()),
        float(kept.mean()),
    )
