"""The quantizers, by the precision that they make. A new one is one file and one line here."""

from __future__ import annotations

from cnai.compress.decoder.int8 import quantize_int8
from cnai.compress.decoder.matrix import Quantizer
from cnai.core.artifact import Precision
from cnai.core.errors import SpecError

QUANTIZERS: dict[Precision, Quantizer] = {
    Precision.INT8: quantize_int8,
}


def quantizer_for(precision: Precision) -> Quantizer:
    """Return the quantizer of a precision.

    Raises:
        SpecError: There is none.
    """
    try:
        return QUANTIZERS[precision]
    except KeyError as error:
        known = ", ".join(QUANTIZERS)
        raise SpecError(
            f"no quantizer makes `{precision}`",
            where="precision",
            hint=f"choose one of: {known}",
        ) from error
