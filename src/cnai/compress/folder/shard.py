"""A safetensors file written in pieces: the head first, because all sizes are known before."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.folder.dtypes import DTYPES
from cnai.core.files import saving


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor that a file is to hold."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class ShardWriter:
    """Takes the numbers of the tensors of one file, each in order, the tensors in any.

    The tensors lie from the widest number format to the narrowest, so that each is aligned.
    """

    def __init__(self, handle: int, entries: Sequence[Entry]) -> None:
        self._handle = handle
        self._next: dict[str, int] = {}
        head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for entry in sorted(entries, key=lambda one: (-DTYPES[one.dtype].itemsize, one.name)):
            end = offset + entry.size_bytes
            head[entry.name] = {
                "dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end],
            }  # fmt: skip
            self._next[entry.name] = offset
            offset = end
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._base = 8 + len(text)
        os.truncate(handle, self._base + offset)
        _write(handle, struct.pack("<Q", len(text)) + text, 0)

    def append(self, name: str, numbers: NDArray[Any]) -> None:
        """Write the next numbers of a tensor."""
        view = memoryview(np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data)
        _write(self._handle, view, self._base + self._next[name])
        self._next[name] += len(view)


@contextmanager
def written_shard(path: Path, entries: Sequence[Entry]) -> Iterator[ShardWriter]:
    """Give a writer; when the block ends the file is on the disk.

    Raises:
        RunError: The disk is full or the file cannot be written.
    """
    with saving(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            yield ShardWriter(handle, entries)
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(handle: int, content: bytes | memoryview, offset: int) -> None:
    view = memoryview(content)
    while view:
        count = os.pwrite(handle, view, offset)
        view, offset = view[count:], offset + count
