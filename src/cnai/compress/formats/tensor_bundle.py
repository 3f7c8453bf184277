"""The variables of a TensorFlow checkpoint, read without TensorFlow.

`variables.index` is a table from names to where the numbers lie; `variables.data-00000-of-00001`
and its fellows hold them. A variable may be stored in slices.
Source: tensorflow/core/util/tensor_bundle/tensor_bundle.h.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from cnai.compress.formats.crc32c import crc32c, masked
from cnai.compress.formats.graph_scope import TYPES
from cnai.compress.formats.sorted_table import read_table
from cnai.compress.formats.tensorflow_messages import BundleEntry, BundleHeader
from cnai.core.errors import DataError
from cnai.core.files import read_bytes

_KINDS: dict[int, Any] = {
    **TYPES, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 9: np.int64, 10: np.bool_,
    17: np.uint16, 22: np.uint32, 23: np.uint64,
}  # fmt: skip
_AGAIN = "copy the folder again, or export the model anew"
Bounds = tuple[tuple[int, int], ...]
"""First index and length along each axis; a length of -1 means all."""


class TensorBundle:
    """A checkpoint.

    Args:
        prefix: Path of its files without their endings, such as `model/variables/variables`.

    Raises:
        DataError: The index is missing or damaged.
    """

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        index = prefix.with_name(prefix.name + ".index")
        table = read_table(read_bytes(index, hint=_AGAIN), where=str(index))
        header = self._parsed(BundleHeader(), table.pop(b"", b""))
        if header.endianness:
            raise self._broken("its numbers are stored with the highest byte first")
        self._shards = header.num_shards
        self._entries: dict[str, Any] = {}
        self._slices: dict[str, list[Any]] = defaultdict(list)
        for key, value in sorted(table.items()):
            entry = self._parsed(BundleEntry(), value)
            if key.startswith(b"\0"):
                # Keys of slices begin so; their order is that of the slices' first indices.
                name = key[1:].partition(b"\0\1")[0].replace(b"\0\xff", b"\0")
                self._slices[name.decode("utf-8", "replace")].append(entry)
            else:
                self._entries[key.decode("utf-8", "replace")] = entry

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def kind(self, name: str) -> int:
        """Return TensorFlow's number of a variable's type."""
        return int(self._entry(name).dtype)

    def size_bytes(self) -> int:
        """Return the bytes of all variables."""
        return sum(one.size for one in self._entries.values())

    def read(self, name: str, bounds: Bounds | None = None) -> NDArray[Any]:
        """Return the numbers of a variable, or of a part of it.

        Raises:
            DataError: There is no such variable, or it is damaged.
        """
        entry = self._entry(name)
        if entry.dtype not in _KINDS:
            raise self._broken(f"variable `{name}` has type {entry.dtype}, which is not read")
        shape = _shape(entry)
        if entry.slices:
            values = self._joined(name, entry, shape)
        else:
            values = self._stored(name, entry, shape)
        return values if bounds is None else values[_index(bounds, shape)]

    def _joined(self, name: str, entry: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        bounds = sorted(
            tuple((one.start, one.length if one.HasField("length") else -1) for one in part.extent)
            for part in entry.slices
        )
        if len(bounds) != len(self._slices[name]):
            raise self._broken(f"variable `{name}` is not stored whole")
        held = sum(part.size for part in self._slices[name])
        kind = np.dtype(_KINDS[entry.dtype])
        if held != math.prod(shape) * kind.itemsize:
            raise self._broken(f"the slices of variable `{name}` do not make it up")
        values = np.empty(shape, kind)
        for part, one in zip(bounds, self._slices[name], strict=True):
            values[_index(part, shape)] = self._stored(name, one, _shape(one))
        return values

    def _stored(self, name: str, entry: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        kind = np.dtype(_KINDS[entry.dtype])
        if min(shape, default=0) < 0 or entry.size != math.prod(shape) * kind.itemsize:
            raise self._broken(f"variable `{name}` of shape {list(shape)} has {entry.size} bytes")
        shard = f".data-{entry.shard_id:05d}-of-{self._shards:05d}"
        file = self._prefix.with_name(self._prefix.name + shard)
        if not file.is_file() or file.stat().st_size < entry.offset + entry.size:
            raise self._broken(f"`{file.name}` with variable `{name}` is missing or too short")
        values = np.fromfile(file, np.uint8, entry.size, offset=entry.offset)
        if masked(crc32c(values)) != entry.crc32c:
            raise self._broken(f"the checksum of variable `{name}` is wrong")
        found: NDArray[Any] = values.view(kind).reshape(shape)
        return found

    def _entry(self, name: str) -> Any:
        if name not in self._entries:
            raise self._broken(f"it holds no variable `{name}`")
        return self._entries[name]

    def _parsed(self, message: Any, content: bytes) -> Any:
        try:
            message.ParseFromString(content)
        except (DecodeError, UnicodeDecodeError) as error:
            raise self._broken(str(error)) from error
        return message

    def _broken(self, reason: str) -> DataError:
        return DataError(
            f"the checkpoint cannot be read: {reason}", where=str(self._prefix), hint=_AGAIN
        )


def _shape(entry: Any) -> tuple[int, ...]:
    return tuple(dim.size for dim in entry.shape.dim)


def _index(bounds: Bounds, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(
        slice(start, size if length < 0 else start + length)
        for (start, length), size in zip(bounds, shape, strict=False)
    )
