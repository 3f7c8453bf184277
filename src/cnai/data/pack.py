"""A stream of tokens into rows, rows into blocks, each block one blob with its checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cnai.core.blobs import BlobStore
from cnai.core.dataset import Block
from cnai.data.work import work_of

Tokens = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackShape:
    """How rows are packed.

    Attributes:
        sequence: Tokens predicted by a row; the row holds one more.
        block_rows: Rows in a block; the last block may have fewer.
        dtype: numpy type of the stored tokens.
        separator: Token with which a document begins, to measure the work of rows whose documents
            do not see each other; None = that is not measured.
    """

    sequence: int
    block_rows: int
    dtype: str
    separator: int | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    """What was stored.

    Attributes:
        blocks: Rows; none when not even one came together.
        work: The work of the rows of each block; none = not measured.
    """

    blocks: tuple[Block, ...]
    work: tuple[Block, ...]


def token_dtype(vocab: int) -> str:
    """Return the smallest stored type that holds every token."""
    return "uint16" if vocab <= 2**16 else "uint32"


def checksum(content: bytes) -> str:
    """Return the xxh3-128 of a blob as hex digits."""
    return xxhash.xxh3_128_hexdigest(content)


def unpack(content: bytes, *, sequence: int, dtype: str) -> Tokens:
    """View the content of a block as rows, shape (rows, sequence + 1), read-only."""
    stored = np.dtype(dtype).newbyteorder("<")
    rows: Tokens = np.frombuffer(content, dtype=stored).reshape(-1, sequence + 1)
    return rows


class Packer:
    """Cuts one endless stream of tokens into rows and stores every full block at once.

    Row i holds tokens `i * sequence` up to and with `(i + 1) * sequence`, so neighbours share one
    token and every token but the first is predicted exactly once. What does not fill the last row
    is left out. Memory: one block.
    """

    def __init__(self, store: BlobStore, prefix: str, shape: PackShape) -> None:
        self._store = store
        self._prefix = prefix
        self._shape = shape
        self._waiting: list[NDArray[np.int64]] = []
        self._waiting_tokens = 0
        self._blocks: list[Block] = []
        self._work: list[Block] = []

    def add(self, tokens: NDArray[np.int64]) -> None:
        """Append tokens to the stream."""
        self._waiting.append(tokens)
        self._waiting_tokens += len(tokens)
        step = self._shape.block_rows * self._shape.sequence
        if self._waiting_tokens <= step:
            return
        stream = np.concatenate(self._waiting)
        while len(stream) > step:
            self._store_block(stream[: step + 1])
            stream = stream[step:]
        self._waiting, self._waiting_tokens = [stream], len(stream)

    def finish(self) -> Packed:
        """Store what is left and return all that was."""
        stream = np.concatenate([np.empty(0, dtype=np.int64), *self._waiting])
        rows = (len(stream) - 1) // self._shape.sequence
        if rows > 0:
            self._store_block(stream[: rows * self._shape.sequence + 1])
        self._waiting, self._waiting_tokens = [], 0
        return Packed(tuple(self._blocks), tuple(self._work))

    def _store_block(self, stream: NDArray[np.int64]) -> None:
        rows = self._rows(stream)
        name = f"{self._prefix}/{len(self._blocks):06d}"
        self._blocks.append(self._stored(f"{name}.bin", len(rows), rows.tobytes()))
        if self._shape.separator is not None:
            work = work_of(rows[:, :-1], self._shape.separator)
            self._work.append(self._stored(f"{name}.work", len(rows), work.tobytes()))

    def _stored(self, key: str, rows: int, content: bytes) -> Block:
        self._store.put(key, content)
        return Block(key=key, rows=rows, size_bytes=len(content), checksum=checksum(content))

    def _rows(self, stream: NDArray[np.int64]) -> Tokens:
        window = np.lib.stride_tricks.sliding_window_view(stream, self._shape.sequence + 1)
        stored = np.dtype(self._shape.dtype).newbyteorder("<")
        rows: Tokens = window[:: self._shape.sequence].astype(stored)
        return rows
