"""What becomes of a tensor of a model folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.core.errors import SpecError


class Form(StrEnum):
    """A number format of weights (W) and of the activations that meet them (A)."""

    W8A8 = "w8a8"
    W8A16 = "w8a16"
    W4A16 = "w4a16"
    FP8 = "fp8"
    BF16 = "bf16"
    FP16 = "fp16"
    KEPT = "kept"


QUANTIZED = frozenset({Form.W8A8, Form.W8A16, Form.W4A16, Form.FP8})
"""Forms with scales; the others are plain floats."""
_FORMS = {
    "auto": Form.W8A16,
    "int8": Form.W8A16,
    "int4": Form.W4A16,
    "fp8": Form.FP8,
    "bf16": Form.BF16,
    "fp16": Form.FP16,
}
GROUPS = (64, 128, 32)
"""Inputs that share a scale in INT4; the first that divides the inputs is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Treatment:
    """What becomes of one tensor.

    Attributes:
        group: Inputs that share a scale (INT4).
        reason: Why it stays a float; empty when it does not.
        ready: Values that calibration chose, in the place of rounding to nearest.
        factor: What each column is multiplied by before it is rounded (a vector: each number).
    """

    form: Form
    group: int | None = None
    reason: str = ""
    ready: QuantizedArray | None = None
    factor: NDArray[np.float32] | None = None

    def digest(self) -> str:
        """Return a hash of all that decides what is written."""
        digest = hashlib.sha256(f"{self.form} {self.group}".encode())
        if self.ready is not None:
            digest.update(self.ready.values.tobytes())
            digest.update(self.ready.scale.tobytes())
        if self.factor is not None:
            digest.update(self.factor.tobytes())
        return digest.hexdigest()


def form_of(precision: str) -> Form:
    """Return the form of linear layers that a precision starts from.

    Raises:
        SpecError: There is no such precision.
    """
    if precision not in _FORMS:
        raise SpecError(
            f"no compression makes `{precision}`",
            where="precision",
            hint=f"choose one of: {', '.join(_FORMS)}",
        )
    return _FORMS[precision]


def group_for(columns: int) -> int | None:
    """Return how many inputs share a scale in INT4; None when no usual number divides them."""
    return next((size for size in GROUPS if columns % size == 0), None)
