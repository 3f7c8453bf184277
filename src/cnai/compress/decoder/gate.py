"""The accuracy gate: how much worse a compressed model is, how sure that is, and if it passes.

The loss of each validation row is measured before and after, so that the rows' own difficulty
cancels out, and the rows are drawn again and again to see how much the result depends on them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cnai.compress.bootstrap import SUSPICIOUS_GAIN, interval
from cnai.core.artifact import Quality
from cnai.core.errors import AccuracyError
from cnai.models.perplexity import perplexity


def measure(
    before_losses: NDArray[np.float64], after_losses: NDArray[np.float64], allowed: float
) -> Quality:
    """Compare the losses of the same rows before and after compression.

    Args:
        before_losses: Nats per token of each row, shape (N,).
        after_losses: The same rows with the compressed model.
        allowed: Largest `relative_loss` that passes.

    Returns:
        The perplexities and their relative change with its 95 % interval. The change is no number
        when a loss is infinite or none, and then the quality does not pass.

    Raises:
        ValueError: The two do not belong to the same rows, or there are none.
    """
    if before_losses.shape != after_losses.shape or before_losses.size == 0:
        raise ValueError(f"losses of {before_losses.shape} and {after_losses.shape} rows")
    with np.errstate(invalid="ignore"):
        change = after_losses - before_losses
    sound = bool(np.isfinite(change).all())
    low, high = _interval(change) if sound else (math.nan, math.nan)
    return Quality(
        metric="perplexity",
        before=perplexity(before_losses),
        after=perplexity(after_losses),
        relative_loss=_growth(float(change.mean())) if sound else math.nan,
        low=low,
        high=high,
        samples=before_losses.size,
        allowed_loss=allowed,
    )


def _interval(change: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the relative change over resampled rows."""
    low, high = interval(change.size, lambda drawn: float(change[drawn].mean()))
    return _growth(low), _growth(high)


def _growth(nats: float) -> float:
    """Turn a change of the mean loss into a relative change of the perplexity."""
    with np.errstate(over="ignore"):
        return float(np.expm1(nats))


def passes(quality: Quality) -> bool:
    """Tell whether a model is good enough, and not too good to be true.

    A perplexity that falls by more than `SUSPICIOUS_GAIN` is no gain of rounding weights: the
    model or the validation text is broken, so it does not pass either.
    """
    return quality.passed and quality.relative_loss >= -SUSPICIOUS_GAIN


def refusal(quality: Quality, *, where: str) -> AccuracyError:
    """Return why a model does not pass."""
    if not quality.passed:
        return AccuracyError(
            f"{_change(quality)}; allowed is {quality.allowed_loss:.2%}",
            where=where,
            hint=_hint(quality),
        )
    return AccuracyError(
        f"{_change(quality)}; rounding weights cannot make a model that much better",
        where=where,
        hint="the model or the validation text is broken: train longer, or measure on text "
        "that the model has not been trained on",
    )


def _change(quality: Quality) -> str:
    return (
        f"perplexity went from {quality.before:.4g} to {quality.after:.4g}, "
        f"{quality.relative_loss:+.2%} (95 % interval {quality.low:+.2%} to {quality.high:+.2%}, "
        f"{quality.samples} sequences)"
    )


def _hint(quality: Quality) -> str:
    if quality.low <= quality.allowed_loss:
        return (
            "the interval reaches into what is allowed: measure on more sequences with "
            "`--set compress.validation_sequences=N`"
        )
    return (
        "keep the model as it is, train it longer, or allow more with `--set compress.max_loss=X`"
    )
