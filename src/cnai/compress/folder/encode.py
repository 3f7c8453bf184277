"""One tensor into the tensors that stand for it in the new file, a block of rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.folder.checkpoint import StoredTensor, blocks
from cnai.compress.folder.dtypes import DTYPES, FLOATS, widened
from cnai.compress.folder.rounding import packed, quantized_rows, restored_rows
from cnai.compress.folder.shard import Entry, ShardWriter
from cnai.compress.folder.treatment import QUANTIZED, Form, Treatment
from cnai.core.errors import DataError

PACKED, SCALE, SIZE = "_packed", "_scale", "_shape"
_BITS = {Form.W8A16: 8, Form.W4A16: 4}
_PLAIN = {Form.BF16: "BF16", Form.FP16: "F16"}
_SAMPLED_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """What became of one tensor.

    Attributes:
        form: Its new number format.
        reason: Why it is a float; empty when it is not.
        error: Norm of the change over norm of the weights, on rows from all over the tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    form: Form
    reason: str
    error: float
    before_bytes: int
    after_bytes: int


def entries(tensor: StoredTensor, treatment: Treatment, scale_kind: str) -> list[Entry]:
    """Return the tensors that the file will hold for one of the source."""
    name, form = tensor.name, treatment.form
    if form not in QUANTIZED:
        kind = _PLAIN.get(form, tensor.dtype)
        return [Entry(name=name, dtype=kind, shape=tensor.shape)]
    rows, columns = tensor.shape
    scales = columns // treatment.group if treatment.group else 1
    scale = Entry(name=name + SCALE, dtype=scale_kind, shape=(rows, scales))
    if form not in _BITS:
        kind = "F8_E4M3" if form is Form.FP8 else "I8"
        return [Entry(name=name, dtype=kind, shape=tensor.shape), scale]
    words = -(-columns // (32 // _BITS[form]))
    return [
        Entry(name=name + PACKED, dtype="I32", shape=(rows, words)),
        scale,
        Entry(name=name + SIZE, dtype="I64", shape=(2,)),
    ]


class Encoder:
    """Writes the tensors of one file.

    Args:
        scale_kind: Number format of the scales, `F32` or `BF16`.
    """

    def __init__(self, writer: ShardWriter, scale_kind: str) -> None:
        self._writer = writer
        self._kind = scale_kind

    def encode(self, tensor: StoredTensor, treatment: Treatment) -> TensorReport:
        """Read, round and write one tensor.

        Raises:
            DataError: A weight is infinite or no number, or too large for the new format.
        """
        change = square = 0.0
        for row, block in blocks(tensor):
            before, after = self._encode_rows(tensor, treatment, row, block)
            change += float(np.square(after - before).sum())
            square += float(np.square(before).sum())
        if treatment.form in _BITS:
            self._writer.append(tensor.name + SIZE, np.array(tensor.shape, "<i8"))
        return TensorReport(
            name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            form=treatment.form,
            reason=treatment.reason,
            error=float(np.sqrt(change / square)) if square else 0.0,
            before_bytes=tensor.size_bytes,
            after_bytes=sum(one.size_bytes for one in entries(tensor, treatment, self._kind)),
        )

    def _encode_rows(
        self, tensor: StoredTensor, treatment: Treatment, row: int, block: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Write a block; return some of its rows before and after."""
        if treatment.form is Form.KEPT and (treatment.factor is None):
            if tensor.dtype in FLOATS:
                _refuse_broken(tensor, widened(block))
            self._writer.append(tensor.name, block)
            return np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
        exact = widened(block)
        if treatment.factor is not None:
            exact = exact * treatment.factor
        _refuse_broken(tensor, exact)
        if treatment.form in QUANTIZED:
            after = self._quantize(tensor.name, treatment, row, exact)
        else:
            with np.errstate(over="ignore"):
                plain = exact.astype(DTYPES[_PLAIN.get(treatment.form, tensor.dtype)])
            _refuse_too_large(tensor, plain)
            self._writer.append(tensor.name, plain)
            after = widened(plain[:_SAMPLED_ROWS])
        return exact[: len(after)], after

    def _quantize(
        self, name: str, treatment: Treatment, row: int, exact: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        form = treatment.form
        if treatment.ready is None:
            new = quantized_rows(exact, treatment, short_scales=self._kind == "BF16")
        else:
            part = slice(row, row + len(exact))
            new = QuantizedArray(
                values=treatment.ready.values[part], scale=treatment.ready.scale[part]
            )
        if form in _BITS:
            self._writer.append(name + PACKED, packed(new.values, _BITS[form]))
        else:
            self._writer.append(name, new.values)
        self._writer.append(name + SCALE, new.scale.astype(DTYPES[self._kind]))
        few = QuantizedArray(values=new.values[:_SAMPLED_ROWS], scale=new.scale[:_SAMPLED_ROWS])
        return restored_rows(few, form)


def _refuse_broken(tensor: StoredTensor, exact: NDArray[np.float32]) -> None:
    """Refuse weights that are no finite numbers; the ends of their range show it fast."""
    if exact.size == 0:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        sound = bool(np.isfinite(exact.min() + exact.max()))
    if not sound and not np.isfinite(exact).all():
        broken = int((~np.isfinite(exact)).sum())
        raise DataError(
            f"{broken} of {exact.size} weights of `{tensor.name}` are infinite or no number",
            where=tensor.name,
            hint="the training diverged or the file is damaged; take an earlier checkpoint",
        )


def _refuse_too_large(tensor: StoredTensor, plain: NDArray[Any]) -> None:
    """Refuse a number format that turned a number into infinity; only float16 is that narrow."""
    if plain.dtype == np.float16 and not np.isfinite(plain).all():
        raise DataError(
            f"`{tensor.name}` holds numbers that are too large for float16",
            where=tensor.name,
            hint="take `--precision BF16`, which holds every number that float32 holds",
        )
