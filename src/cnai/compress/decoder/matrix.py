"""A quantized weight matrix, and what makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedMatrix:
    """INT8 values with a scale a row; the weight is `values * scale`.

    Attributes:
        values: int8 of (out, in), within -127 to 127.
        scale: float32 of (out, 1).
    """

    values: Tensor
    scale: Tensor


Quantizer = Callable[[str, Tensor], QuantizedMatrix]
"""Takes a parameter's name and its float32 matrix (out, in)."""
