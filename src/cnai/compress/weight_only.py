"""Makes the weights of any model smaller, each by itself, without data and without running it.

Every weight that is large enough becomes INT8 with a scale a channel. One that INT8 would hurt too
much becomes float16, and one that is no learned weight stays what it is; each says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cnai.compress.bases import is_fixed_basis
from cnai.compress.channels import (
    QuantizedArray,
    RoundingError,
    quantize_channels,
    rounding_error,
    typical_error,
)
from cnai.compress.formats.weights import ModelFile, Weight
from cnai.core.errors import DataError

LARGEST_ERROR = 0.04
"""Relative error above which INT8 is not used: four times that of normally distributed weights."""
_LARGEST_UNKNOWN_ERROR = 0.01
_UNKNOWN_SHARE = 0.01
_LARGEST_SHARE = 0.75
"""Of its bytes that a weight may still take; narrow matrices are mostly scales."""
_LARGEST_FLOAT16 = 65504.0
BASIS = "is the fixed basis of a transform"
ROUGH = "INT8 would change it by"
"""How the reasons begin for which a weight stays a float that data may overrule."""

Progress = Callable[[int, int], None]
"""Called with the bytes done, and how many there are."""


class Scheme(StrEnum):
    """What a weight becomes."""

    INT8 = "int8"
    """Stored in INT8, computed with as floats."""
    COMPUTED = "int8 arithmetic"
    """Stored in INT8 and multiplied in INT8."""
    FLOAT16 = "float16"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightReport:
    """What became of one weight.

    Attributes:
        use: The operation that consumes it; empty when it is none that multiplies weights.
        reason: Why it is not INT8; empty when it is.
        relative_error: Norm of the change over norm of the weight.
        cosine: Between the weight before and after.
    """

    name: str
    use: str
    shape: tuple[int, ...]
    dtype: str
    scheme: Scheme
    reason: str
    relative_error: float
    cosine: float
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user wants of the weights.

    Attributes:
        scheme: INT8, or FLOAT16 for a plain cast.
        ignore: Regular expression; weights whose name it finds stay as they are.
        bases: Whether fixed bases may become INT8; only where data proves that it does no harm.
        rough: Whether weights that INT8 changes much may become it nevertheless; likewise.
        half: Names of weights that become float16, because INT8 of them did harm.
    """

    scheme: Scheme = Scheme.INT8
    ignore: str | None = None
    bases: bool = False
    rough: bool = False
    half: frozenset[str] = frozenset()


def shrink(
    model: ModelFile, wishes: Wishes, progress: Progress = lambda _done, _total: None
) -> tuple[WeightReport, ...]:
    """Replace the weights of a model that are worth it; nothing is written yet.

    Raises:
        DataError: A weight holds infinite numbers or none, or is damaged.
    """
    weights = list(model.weights())
    total = sum(weight.size_bytes for weight in weights)
    done, reports = 0, []
    for weight in weights:
        progress(done, total)
        reports.append(_shrink_one(model, weight, wishes, total))
        done += weight.size_bytes
    progress(done, total)
    return tuple(reports)


def _shrink_one(model: ModelFile, weight: Weight, wishes: Wishes, total: int) -> WeightReport:
    reason = _reason_to_keep(weight, wishes, model.overhead_bytes, total)
    if reason:
        return _report(weight, Scheme.KEPT, reason)
    values = model.read(weight)
    if not np.isfinite(values).all():
        if not weight.use:
            return _report(weight, Scheme.KEPT, "holds infinite numbers, as masks do")
        raise DataError(
            f"{int((~np.isfinite(values)).sum())} of {values.size} weights of `{weight.name}` are "
            "infinite or no number",
            where=weight.name,
            hint="the training diverged or the file is damaged; take an earlier checkpoint",
        )
    reason = _reason_for_float16(values, weight, wishes)
    if reason:
        return _as_float16(model, weight, values, reason)
    new, error, typical = _rounded(values, weight)
    size = new.values.nbytes + new.scale.size * weight.size_bytes // max(1, weight.size)
    worst = max(error.relative, typical)
    if not wishes.rough and worst > (LARGEST_ERROR if weight.use else _LARGEST_UNKNOWN_ERROR):
        why = f"{ROUGH} {worst:.1%}"
        return _as_float16(model, weight, values, why)
    if size > _LARGEST_SHARE * weight.size_bytes:
        return _report(weight, Scheme.KEPT, "is too small to gain anything")
    model.replace(weight, new)
    return _report(weight, Scheme.INT8, "", error, size)


def _reason_for_float16(values: NDArray[np.floating], weight: Weight, wishes: Wishes) -> str:
    if wishes.scheme is Scheme.FLOAT16:
        return "asked for"
    if weight.name in wishes.half:
        return "INT8 of it changes the outputs too much"
    if not wishes.bases and is_fixed_basis(_channels_first(values, weight.axes)):
        return BASIS
    return ""


def _reason_to_keep(weight: Weight, wishes: Wishes, overhead: int, total: int) -> str:
    if wishes.ignore and re.search(wishes.ignore, weight.name):
        return "is ignored as asked"
    if len(weight.shape) < 2:
        return "is a vector"
    share = 2 if wishes.scheme is Scheme.FLOAT16 else 4
    if weight.size_bytes - weight.size_bytes // share <= 2 * overhead:
        return "is too small to gain anything"
    if not weight.use and weight.size_bytes < _UNKNOWN_SHARE * total:
        return "is not multiplied with activations"
    if wishes.scheme is Scheme.FLOAT16 and weight.dtype == "float16":
        return "is float16 already"
    return ""


def _rounded(
    values: NDArray[np.floating], weight: Weight
) -> tuple[QuantizedArray, RoundingError, float]:
    """Round along the known channels; where they are not known, along the axis that errs least."""
    choices = [weight.axes] if weight.axes is not None else [(axis,) for axis in range(values.ndim)]
    tried = []
    for axes in choices:
        new = quantize_channels(values, axes)
        restored = new.restored()
        error = rounding_error(values, restored)
        tried.append((new, error, typical_error(values, restored, axes)))
    return min(tried, key=lambda one: max(one[1].relative, one[2]))


def _as_float16(
    model: ModelFile, weight: Weight, values: NDArray[np.floating], why: str
) -> WeightReport:
    if weight.dtype in {"float16", "bfloat16"}:
        return _report(weight, Scheme.KEPT, why)
    if np.abs(values).max() > _LARGEST_FLOAT16:
        return _report(weight, Scheme.KEPT, f"{why}, and float16 cannot hold its numbers")
    half = values.astype(np.float16)
    model.replace(weight, half)
    error = rounding_error(values, half)
    return _report(weight, Scheme.FLOAT16, why, error, half.nbytes)


def _channels_first(
    values: NDArray[np.floating], axes: tuple[int, ...] | None
) -> NDArray[np.floating]:
    """Return a view (channels, numbers of a channel)."""
    chosen = axes if axes is not None else (0,)
    moved = np.moveaxis(values, chosen, range(len(chosen)))
    channels = int(np.prod([values.shape[axis] for axis in chosen], dtype=np.int64))
    return moved.reshape(channels, -1)


_EXACT = RoundingError(relative=0.0, cosine=1.0)


def _report(
    weight: Weight,
    scheme: Scheme,
    reason: str,
    error: RoundingError = _EXACT,
    size: int | None = None,
) -> WeightReport:
    return WeightReport(
        name=weight.name,
        use=weight.use,
        shape=weight.shape,
        dtype=weight.dtype,
        scheme=scheme,
        reason=reason,
        relative_error=error.relative,
        cosine=error.cosine,
        before_bytes=weight.size_bytes,
        after_bytes=weight.size_bytes if size is None else size,
    )
