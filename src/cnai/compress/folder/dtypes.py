"""The number formats of safetensors, as numpy has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""What a weight may be that is not compressed yet."""


def widened(values: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return floats of any format as float32; bfloat16 by moving its bits, which is fast."""
    if values.dtype != DTYPES["BF16"]:
        return values.astype(np.float32, copy=False)
    wide = values.view(np.uint16).astype(np.uint32)
    np.left_shift(wide, 16, out=wide)
    return wide.view(np.float32)


def as_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to the nearest bfloat16, kept as float32."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)
