"""A GGUF model, read and written: what llama.cpp runs.

Matrices become Q8_0, llama.cpp's own INT8: blocks of 32 numbers of a row with a
float16 scale each.
The metadata is copied byte for byte. Tensors are read from the file when they are needed and are
written one after the other, so that memory holds one of them at a time.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.gguf_layout import (
    BF16,
    F16,
    F32,
    MAGIC,
    Q8_0,
    TYPES,
    GgufTensor,
    bytes_of,
    read_layout,
)
from cnai.compress.formats.recognise import Format
from cnai.compress.formats.weights import Weight
from cnai.core.errors import DataError
from cnai.core.files import file_atomically

BLOCK = 32
_FLOATS = {F32: np.dtype(np.float32), F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16)}
_FILE_TYPE_Q8_0, _FILE_TYPE_F16 = 7, 1
_LOOKUPS = ("token_embd", "position_embd", "token_types")
_PIECE_BLOCKS = 1 << 15
_LARGEST_SCALE = 65504.0


class GgufFile:
    """A GGUF model.

    Args:
        path: The file.

    Raises:
        DataError: It is damaged.
        SpecError: It is of a version or tensor type that is not read.
    """

    format = Format.GGUF
    overhead_bytes = 0

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._layout = read_layout(self._content, where=path)
        self._tensors = {_text(one.name): one for one in self._layout.tensors}
        self._becomes: dict[str, int] = {}

    def weights(self) -> Iterator[Weight]:
        """Yield every tensor of floats whose rows fill blocks.

        What is quantized already is never quantized again, and other rows cannot become Q8_0.
        """
        for name, tensor in self._tensors.items():
            if tensor.kind in _FLOATS and tensor.dims[0] % BLOCK == 0:
                yield Weight(
                    name=name,
                    use=_use(name, tensor),
                    shape=tuple(reversed(tensor.dims)),
                    dtype=_FLOATS[tensor.kind].name,
                    axes=tuple(range(len(tensor.dims) - 1)),
                )

    def read(self, weight: Weight) -> NDArray[np.floating]:
        """Return the numbers of a tensor."""
        return self._floats(self._tensors[weight.name])

    def replace(self, weight: Weight, new: QuantizedArray | NDArray[np.float16]) -> None:
        """Let a tensor become Q8_0, whose blocks are rounded when it is written; or float16.

        The scales of whole channels that `new` has are coarser than those of blocks.

        Raises:
            DataError: A scale is larger than float16 can hold, which no trained weight needs.
        """
        if isinstance(new, QuantizedArray) and new.scale.max(initial=0) > _LARGEST_SCALE:
            raise DataError(
                f"tensor `{weight.name}` holds numbers up to {127 * float(new.scale.max()):.3g}, "
                "which Q8_0 cannot hold",
                where=str(self._path),
                hint="the file is damaged or the training diverged; take an earlier checkpoint",
            )
        self._becomes[weight.name] = Q8_0 if isinstance(new, QuantizedArray) else F16

    def quantized(self) -> int:
        """Return the number of quantized tensors."""
        return sum(TYPES[one.kind][1] > 1 for one in self._layout.tensors)

    def save(self, target: Path) -> None:
        """Write the model, tensor by tensor."""
        kinds = {name: self._becomes.get(name, one.kind) for name, one in self._tensors.items()}
        with file_atomically(target) as file:
            file.write(self._head(kinds))
            for name, tensor in self._tensors.items():
                _pad(file, self._layout.alignment)
                self._write(file, tensor, kinds[name])
            _pad(file, self._layout.alignment)

    def _head(self, kinds: dict[str, int]) -> bytes:
        layout = self._layout
        start, end = layout.metadata
        metadata = bytearray(self._content[start:end])
        if layout.file_type is not None and self._becomes:
            whole = Q8_0 in self._becomes.values()
            number = _FILE_TYPE_Q8_0 if whole else _FILE_TYPE_F16
            struct.pack_into("<I", metadata, layout.file_type - start, number)
        head: list[bytes | bytearray] = [
            MAGIC,
            struct.pack("<IQQ", layout.version, len(kinds), layout.entries),
            metadata,
        ]
        offset = 0
        for name, tensor in self._tensors.items():
            head.append(struct.pack("<Q", len(tensor.name)) + tensor.name)
            axes = len(tensor.dims)
            head.append(struct.pack(f"<I{axes}QIQ", axes, *tensor.dims, kinds[name], offset))
            size = bytes_of(kinds[name], tensor.dims)
            offset += -(-size // layout.alignment) * layout.alignment
        return b"".join(head)

    def _write(self, file: BinaryIO, tensor: GgufTensor, kind: int) -> None:
        if kind == tensor.kind:
            file.write(memoryview(self._content)[tensor.start : tensor.start + tensor.size_bytes])
        elif kind == F16:
            file.write(self._floats(tensor).astype(np.float16).tobytes())
        else:
            flat = self._floats(tensor).reshape(-1, BLOCK)
            file.writelines(
                to_q8_0(flat[place : place + _PIECE_BLOCKS]).tobytes()
                for place in range(0, len(flat), _PIECE_BLOCKS)
            )

    def _floats(self, tensor: GgufTensor) -> NDArray[np.floating]:
        kind = _FLOATS[tensor.kind]
        count = tensor.size_bytes // kind.itemsize
        flat = np.frombuffer(self._content, kind, count, tensor.start)
        return flat.reshape(tuple(reversed(tensor.dims)))


def to_q8_0(blocks: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Round blocks of 32 numbers to a float16 scale and 32 bytes each, as llama.cpp does.

    Args:
        blocks: Shape (count, 32).

    Returns:
        Shape (count, 34).

    Source: `quantize_row_q8_0_ref` in ggml-quants.c.
    """
    exact = blocks.astype(np.float32)
    scale = np.abs(exact).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = exact * inverse
    # C's roundf takes halves away from zero; numpy's rint takes them to the even number.
    values = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), values.view(np.uint8)], axis=1)


def _use(name: str, tensor: GgufTensor) -> str:
    """Return how a tensor is used; GGUF says it by the tensor's name and number of axes."""
    if len(tensor.dims) < 2 or "norm" in name or not name.endswith(".weight"):
        return ""
    return "lookup" if name.startswith(_LOOKUPS) else "product"


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(bytes(-file.tell() % alignment))
