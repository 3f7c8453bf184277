"""The safetensors of a model folder, read in pieces, of whatever architecture and size.

Only the heads of the files are held; numbers are read a block of rows at a time.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.folder.dtypes import DTYPES
from cnai.core.errors import DataError
from cnai.core.llama_config import read_config
from cnai.core.model_folder import INDEX_FILE, damaged, weight_files
from cnai.core.records import decode

BLOCK = 1 << 18
"""Numbers read at once; a block and what becomes of it stay in a processor's cache."""
_LONGEST_HEAD = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies.

    Attributes:
        dtype: As safetensors names it, `BF16`.
        start: Its first byte in the file.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def module(self) -> str:
        """The module whose weight it is."""
        return self.name.removesuffix(".weight")


class Checkpoint:
    """A folder with `config.json` and safetensors.

    Attributes:
        config: Content of `config.json`.
        shards: Tensors of each file, in the order of the file's name and of their bytes.

    Raises:
        DataError: There is no config, no weights, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_config(folder)
        self.shards: dict[str, tuple[StoredTensor, ...]] = {
            file.name: _head(file) for file in _files(folder)
        }
        self.tensors = {one.name: one for shard in self.shards.values() for one in shard}
        if not self.tensors:
            raise damaged(folder, "it holds no tensors")

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def is_compressed(self) -> bool:
        """Whether it was quantized before."""
        held = {tensor.dtype for tensor in self.tensors.values()}
        return "quantization_config" in self.config or bool(held & {"F8_E4M3", "F8_E5M2", "I8"})


def blocks(tensor: StoredTensor) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the first row and the numbers of each block of rows; a vector is one row.

    Raises:
        DataError: The file is cut short.
    """
    kind = DTYPES[tensor.dtype]
    rows, columns = matrix_shape(tensor.shape)
    step = max(1, BLOCK // max(1, columns))
    with tensor.file.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), tensor.start, tensor.size_bytes, os.POSIX_FADV_SEQUENTIAL)
        file.seek(tensor.start)
        for row in range(0, rows, step):
            count = min(step, rows - row)
            block = np.empty((count, columns), kind)
            _fill(file, block, tensor)
            yield row, block


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a tensor read as a matrix."""
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return 1, shape[0]
    return shape[0], math.prod(shape[1:])


def read(tensor: StoredTensor) -> NDArray[Any]:
    """Return a whole tensor in its own number format."""
    parts = [block for _, block in blocks(tensor)]
    whole = np.concatenate(parts) if parts else np.empty(0, DTYPES[tensor.dtype])
    return whole.reshape(tensor.shape)


def _fill(file: Any, block: NDArray[Any], tensor: StoredTensor) -> None:
    view = memoryview(block.reshape(-1).view(np.uint8).data)
    while view:
        count = file.readinto(view)
        if not count:
            raise damaged(tensor.file, f"it ends inside `{tensor.name}`")
        view = view[count:]


def _files(folder: Path) -> list[Path]:
    files = weight_files(folder)
    outside = [file for file in files if file.parent != folder]
    if outside:
        raise damaged(folder / INDEX_FILE, f"it names `{outside[0]}`, which is not beside it")
    return files


def _head(file: Path) -> tuple[StoredTensor, ...]:
    """Read where the tensors of a file lie, and hold that to the size of the file."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            start = opened.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
            if not 0 < length <= min(size - 8, _LONGEST_HEAD):
                raise damaged(file, "it does not start as safetensors do")
            head = decode(dict[str, Any], opened.read(length), where=str(file))
    except OSError as error:
        raise damaged(file, str(error)) from error
    head.pop("__metadata__", None)
    found = [_entry(file, name, entry, 8 + length) for name, entry in head.items()]
    found.sort(key=lambda one: one.start)
    if any(one.start + one.size_bytes > size for one in found):
        raise damaged(file, "it is cut short")
    return tuple(found)


def _entry(file: Path, name: str, entry: Any, base: int) -> StoredTensor:
    try:
        kind, shape = entry["dtype"], tuple(int(side) for side in entry["shape"])
        first, end = (int(offset) for offset in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(file, f"`{name}` is not described ({error})") from error
    if kind not in DTYPES:
        raise DataError(
            f"`{name}` is of the number format `{kind}`, which is not read",
            where=str(file),
            hint="give the model in float32, bfloat16 or float16",
        )
    tensor = StoredTensor(name=name, file=file, dtype=kind, shape=shape, start=base + first)
    if first < 0 or min(shape, default=0) < 0 or end - first != tensor.size_bytes:
        raise damaged(file, f"`{name}` has {end - first} bytes for {kind} of {shape}")
    return tensor
