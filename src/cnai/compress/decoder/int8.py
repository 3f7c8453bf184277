"""Symmetric INT8 with one scale for each output channel, rounded to nearest.

No calibration data is needed, and the largest error of a weight is half a scale. Compared with one
scale for a whole matrix, a row of small weights keeps its 8 bits beside a row of large ones.
Source: Krishnamoorthi 2018, arXiv 1806.08342, sections 2.2 and 3.1.1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cnai.compress.decoder.matrix import QuantizedMatrix
from cnai.core.errors import DataError

_LARGEST = 127
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny


def quantize_int8(name: str, weight: Tensor) -> QuantizedMatrix:
    """Quantize a matrix (out, in); a row of zeros stays zero.

    Raises:
        DataError: A weight is infinite or no number.
    """
    refuse_non_finite(name, weight)
    scale = weight.abs().amax(dim=1, keepdim=True) / _LARGEST
    scale = torch.where(scale < _SMALLEST_SCALE, 1.0, scale)
    values = (weight / scale).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
    return QuantizedMatrix(values=values, scale=scale)


def refuse_non_finite(name: str, weight: Tensor) -> None:
    """Refuse a tensor that is broken before it is compressed.

    Raises:
        DataError: A weight is infinite or no number.
    """
    broken = int((~weight.isfinite()).sum())
    if broken:
        raise DataError(
            f"{broken} of {weight.numel()} weights of `{name}` are infinite or no number",
            where=name,
            hint="the training diverged or the file is damaged; take an earlier checkpoint",
        )
