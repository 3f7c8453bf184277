"""Symmetric INT8 with a scale for each output channel, on numpy arrays of any rank.

Source: Krishnamoorthi 2018, arXiv 1806.08342, sections 2.2 and 3.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST = 127
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedArray:
    """INT8 values with their scales; the weight is `values * scale`.

    Attributes:
        values: int8 in the shape of the weight, within -127 to 127.
        scale: float32 of the same rank, with size 1 along every axis but the channels'.
    """

    values: NDArray[np.int8]
    scale: NDArray[np.float32]

    def restored(self) -> NDArray[np.float32]:
        """Return the weight that a runtime computes with."""
        return self.values.astype(np.float32) * self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingError:
    """What rounding changed in one weight.

    Attributes:
        relative: Norm of the change over norm of the weight; 0 for a weight of zeros.
        cosine: Cosine between the weight before and after, 1 for a weight of zeros.
    """

    relative: float
    cosine: float


def quantize_channels(weight: NDArray[np.floating], axes: Sequence[int]) -> QuantizedArray:
    """Round a weight to INT8; a channel of zeros stays zero.

    Args:
        weight: Finite numbers of any float type and rank.
        axes: The axes that count output channels; () = one scale for all.
    """
    exact = weight.astype(np.float32, copy=False)
    inner = tuple(axis for axis in range(exact.ndim) if axis not in set(axes))
    if exact.size == 0:
        shape = [size if axis in set(axes) else 1 for axis, size in enumerate(exact.shape)]
        return QuantizedArray(values=exact.astype(np.int8), scale=np.ones(shape, np.float32))
    scale = scales_of(exact, inner, LARGEST)
    return QuantizedArray(values=rounded(exact, scale, LARGEST), scale=scale)


def scales_of(
    exact: NDArray[np.float32], inner: tuple[int, ...], largest: float
) -> NDArray[np.float32]:
    """Return the scales with which the largest number along some axes becomes `largest`.

    Numbers so small that their scale is no normal number get the scale 1 and round to zero
    instead of to infinity. A number that is infinite or none shows in its scale.
    """
    scale = np.abs(exact).max(axis=inner, keepdims=True) / np.float32(largest)
    return np.where(scale < _SMALLEST_SCALE, np.float32(1), scale)


def rounded(
    exact: NDArray[np.float32], scale: NDArray[np.float32], largest: int
) -> NDArray[np.int8]:
    """Divide by the scales and round to whole numbers of at most `largest`."""
    values = exact / scale
    np.rint(values, out=values)
    np.clip(values, -largest, largest, out=values)
    return values.astype(np.int8)


def rounding_error(before: NDArray[np.floating], after: NDArray[np.floating]) -> RoundingError:
    """Compare a weight before and after; both are read in float64 sums, in pieces."""
    change = square = other = dot = 0.0
    for one, two in zip(_pieces(before), _pieces(after), strict=True):
        change += float(np.dot(one - two, one - two))
        square += float(np.dot(one, one))
        other += float(np.dot(two, two))
        dot += float(np.dot(one, two))
    if square == 0:
        return RoundingError(relative=0.0 if other == 0 else np.inf, cosine=float(other == 0))
    length = np.sqrt(square) * np.sqrt(other)
    return RoundingError(
        relative=float(np.sqrt(change / square)), cosine=float(dot / length) if length else 0.0
    )


def typical_error(
    before: NDArray[np.floating], after: NDArray[np.floating], axes: Sequence[int]
) -> float:
    """Return the relative error of the weights that a typical input meets (the median input).

    One input with huge weights sets the scales of all channels, hides in the error of the whole
    matrix, and rounds the weights of all other inputs to nothing.

    Args:
        axes: The axes that count output channels; the others count inputs.
    """
    # Divided by the largest number, since the square of a huge one would be infinite.
    peak = np.float32(max(float(np.abs(before).max(initial=0)), _SMALLEST_SCALE))
    exact = before.astype(np.float32) / peak
    change = np.square(after.astype(np.float32) / peak - exact)
    square = np.square(exact)
    outputs = tuple(axes)
    norms, errors = square.sum(axis=outputs).reshape(-1), change.sum(axis=outputs).reshape(-1)
    alive = norms > 0
    if not alive.any():
        return 0.0
    return float(np.sqrt(np.median(errors[alive] / norms[alive])))


_PIECE = 1 << 20


def _pieces(array: NDArray[np.floating]) -> list[NDArray[np.float64]]:
    flat = array.reshape(-1)
    starts = range(0, max(1, flat.size), _PIECE)
    return [flat[start : start + _PIECE].astype(np.float64) for start in starts]
