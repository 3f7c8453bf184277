"""Rounding of one block of rows to each form; INT8 is that of `channels`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import LARGEST, QuantizedArray, rounded, scales_of
from cnai.compress.folder.dtypes import as_bfloat16
from cnai.compress.folder.treatment import Form, Treatment

LARGEST4 = 7
LARGEST_FLOAT8 = 448.0
_SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)


def quantized_rows(
    exact: NDArray[np.float32], treatment: Treatment, *, short_scales: bool
) -> QuantizedArray:
    """Round rows (out, in) with their scales (out, 1), in INT4 (out, in / group).

    The values are int8; for FP8 they are the bits of float8 e4m3.

    Args:
        short_scales: Round the scales to bfloat16 first, as the loaders of a model do whose
            config says bfloat16, so that the weights are rounded to what is computed with.
    """
    if treatment.form is Form.W4A16:
        return _four_bits(exact, treatment.group or exact.shape[1], short_scales=short_scales)
    largest = LARGEST_FLOAT8 if treatment.form is Form.FP8 else LARGEST
    scale = scales_of(exact, (1,), largest)
    if short_scales:
        scale = as_bfloat16(scale)
    if treatment.form is Form.FP8:
        values = np.clip(exact / scale, -LARGEST_FLOAT8, LARGEST_FLOAT8)
        bits = values.astype(ml_dtypes.float8_e4m3fn).view(np.int8)
        return QuantizedArray(values=bits, scale=scale)
    return QuantizedArray(values=rounded(exact, scale, LARGEST), scale=scale)


def restored_rows(new: QuantizedArray, form: Form) -> NDArray[np.float32]:
    """Return the float32 rows that a runtime computes with."""
    if form is Form.FP8:
        bits = new.values.view(ml_dtypes.float8_e4m3fn)
        exact: NDArray[np.float32] = bits.astype(np.float32) * new.scale
        return exact
    rows, columns = new.values.shape
    groups = new.scale.shape[1]
    values = new.values.reshape(rows, groups, columns // groups).astype(np.float32)
    return (values * new.scale[:, :, None]).reshape(rows, columns)


def group_scales(grouped: NDArray[np.float32], *, short_scales: bool) -> NDArray[np.float32]:
    """Return for groups (..., inputs) the scales (..., 1) that err least in four bits.

    Cutting the largest numbers a little lets all others be rounded more finely.
    """
    full = scales_of(grouped, (grouped.ndim - 1,), LARGEST4)
    best: NDArray[np.float32] = full
    best_error: NDArray[np.float32] | None = None
    for shrink in _SHRINKS:
        scale = full * np.float32(shrink)
        if short_scales:
            scale = as_bfloat16(scale)
        change = rounded(grouped, scale, LARGEST4) * scale - grouped
        error = np.square(change).sum(axis=-1, keepdims=True)
        if best_error is None:
            best, best_error = scale, error
        else:
            better = error < best_error
            best, best_error = np.where(better, scale, best), np.minimum(error, best_error)
    return best


def _four_bits(exact: NDArray[np.float32], group: int, *, short_scales: bool) -> QuantizedArray:
    rows, columns = exact.shape
    grouped = exact.reshape(rows, columns // group, group)
    scale = group_scales(grouped, short_scales=short_scales)
    values = rounded(grouped, scale, LARGEST4).reshape(rows, columns)
    return QuantizedArray(values=values, scale=scale[:, :, 0])


def packed(values: NDArray[np.int8], bits: int) -> NDArray[np.int32]:
    """Pack int8 (out, in) of 4 or 8 bits into int32, the first value in the lowest bits."""
    shifted = (values.view(np.uint8) + np.uint8(1 << (bits - 1))) & np.uint8((1 << bits) - 1)
    odd = -values.shape[1] % (32 // bits)
    if odd:
        shifted = np.pad(shifted, ((0, 0), (0, odd)))
    if bits == 4:
        shifted = shifted[:, 0::2] | (shifted[:, 1::2] << np.uint8(4))
    return np.ascontiguousarray(shifted).view("<i4")
