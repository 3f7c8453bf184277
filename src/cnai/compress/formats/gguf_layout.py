"""The layout of a GGUF file: its metadata as bytes, and where each tensor lies.

The metadata is walked and kept as it is, never understood, so that nothing in it is lost.
Source: ggml's docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from cnai.core.errors import DataError, SpecError

MAGIC = b"GGUF"
_VERSIONS = {2, 3}
_HEAD = 24
_ALIGNMENT_KEY = b"general.alignment"
_FILE_TYPE_KEY = b"general.file_type"
_U32, _STRING, _ARRAY = 4, 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value by GGUF's number of its type."""
_LARGEST_NAME = 1 << 16
_MOST_AXES = 8

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip
"""Name, numbers in a block and bytes of a block, by ggml's number of the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """A tensor of the file.

    Attributes:
        dims: Sizes, the fastest first as GGUF counts them.
        kind: ggml's number of its type.
        start: First byte in the file.
    """

    name: bytes
    dims: tuple[int, ...]
    kind: int
    start: int

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return bytes_of(self.kind, self.dims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything lies.

    Attributes:
        metadata: First and last byte of the metadata.
        file_type: Where the number of the file's type lies in the file; None where it has none.
    """

    version: int
    entries: int
    metadata: tuple[int, int]
    alignment: int
    file_type: int | None
    tensors: tuple[GgufTensor, ...]


def bytes_of(kind: int, dims: tuple[int, ...]) -> int:
    """Return the bytes of a tensor."""
    _, numbers, size = TYPES[kind]
    return math.prod(dims) // numbers * size


def read_layout(content: mmap.mmap | bytes, *, where: Path) -> Layout:
    """Walk a file from its beginning.

    Raises:
        DataError: It is damaged.
        SpecError: It is of a version, byte order or tensor type that is not read.
    """
    try:
        return _Walk(content, where).layout()
    except (struct.error, ValueError, IndexError) as error:
        raise DataError(
            f"`{where.name}` is no whole GGUF file: {error}",
            where=str(where),
            hint="copy or convert the model again",
        ) from error


class _Walk:
    def __init__(self, content: mmap.mmap | bytes, where: Path) -> None:
        self._content, self._where = content, where
        self._place = len(MAGIC)
        self._alignment = 32
        self._file_type: int | None = None

    def layout(self) -> Layout:
        version = self._number("<I")
        if version not in _VERSIONS:
            other = "a big-endian or unknown" if version & 0xFFFF == 0 else f"the {version}."
            raise SpecError(
                f"`{self._where.name}` is of {other} version of GGUF; read are 2 and 3",
                where=str(self._where),
                hint="convert the model again with a present version of llama.cpp",
            )
        count, entries = self._number("<Q"), self._number("<Q")
        start = self._place
        for _ in range(self._possible(entries, 13)):
            self._entry()
        end = self._place
        raw = [self._tensor() for _ in range(self._possible(count, 24))]
        begin = -(-self._place // self._alignment) * self._alignment
        tensors = tuple(
            GgufTensor(name=name, dims=dims, kind=kind, start=begin + offset)
            for name, dims, kind, offset in raw
        )
        for one in tensors:
            if one.start + one.size_bytes > len(self._content):
                raise ValueError(f"tensor `{one.name.decode('utf-8', 'replace')}` lies beyond it")
        if len({one.name for one in tensors}) != len(tensors):
            raise ValueError("two tensors have one name")
        return Layout(
            version=version, entries=entries, metadata=(start, end), alignment=self._alignment,
            file_type=self._file_type, tensors=tensors,
        )  # fmt: skip

    def _possible(self, count: int, least_bytes: int) -> int:
        """Return a count that the file can hold; one that it cannot would be walked for ever."""
        if count * least_bytes > len(self._content) - self._place:
            raise ValueError(f"it cannot hold the {count} entries that it says")
        return count

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._content, self._place)
        self._place += struct.calcsize(form)
        return int(value)

    def _skip(self, count: int) -> None:
        if count > len(self._content) - self._place:
            raise ValueError("it ends in the middle")
        self._place += count

    def _text(self) -> bytes:
        length = self._number("<Q")
        if length > _LARGEST_NAME:
            raise ValueError(f"a name of {length} bytes is none")
        start = self._place
        self._skip(length)
        return bytes(self._content[start : self._place])

    def _entry(self) -> None:
        key, kind = self._text(), self._number("<I")
        start = self._place
        self._value(kind)
        if kind == _U32 and key == _ALIGNMENT_KEY:
            (self._alignment,) = struct.unpack_from("<I", self._content, start)
            if not 0 < self._alignment <= 1 << 20 or self._alignment & (self._alignment - 1):
                raise ValueError(f"an alignment of {self._alignment} is none")
        if kind == _U32 and key == _FILE_TYPE_KEY:
            self._file_type = start

    def _value(self, kind: int, depth: int = 0) -> None:
        if kind == _STRING:
            self._skip(self._number("<Q"))
        elif kind == _ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in _SIZES:
                self._skip(_SIZES[inner] * count)
                return
            if depth > 4:
                raise ValueError("lists are nested too deep")
            for _ in range(self._possible(count, 8)):
                self._value(inner, depth + 1)
        elif kind in _SIZES:
            self._skip(_SIZES[kind])
        else:
            raise ValueError(f"a value has the unknown type {kind}")

    def _tensor(self) -> tuple[bytes, tuple[int, ...], int, int]:
        name, axes = self._text(), self._number("<I")
        if not 0 < axes <= _MOST_AXES:
            raise ValueError(f"a tensor of {axes} axes is none")
        dims = tuple(self._number("<Q") for _ in range(axes))
        kind, offset = self._number("<I"), self._number("<Q")
        if kind not in TYPES:
            raise SpecError(
                f"tensor `{name.decode('utf-8', 'replace')}` has the unknown type {kind}",
                where=str(self._where),
                hint="convert the model to F16 or F32 with llama.cpp, and give that",
            )
        if dims[0] % TYPES[kind][1]:
            raise ValueError(f"a row of {dims[0]} numbers does not fill blocks of its type")
        return name, dims, kind, offset
