"""Rows of any step, read on demand through the cache."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnai.core.blobs import BlobStore
from cnai.core.dataset import DatasetManifest
from cnai.data.block_cache import BlockCache
from cnai.data.order import rows_at
from cnai.data.pack import Tokens, unpack
from cnai.data.work import WORK_DTYPE, evened

Request = tuple[int, int, int]
_MEMORY_BYTES = 64 * 2**20
_KEPT_REQUESTS = 4


class DatasetReader:
    """A BatchReader over a packed dataset.

    Blocks pass through three places: the store, files in `cache_folder`, and up to `memory_bytes`
    in memory, which admits until it is full and evicts nothing. A block is checked whenever it is
    read whole; once checked, single rows of its file are read without reading it all.

    Safe to use from a process forked after the reader was used, as far as its store is.

    Args:
        cache_folder: Made when needed; processes of a machine share it.
        batch: Rows in a step over all ranks.
        seed: Seed of the order.
        groups: Rows of the groups of neighbours in a step that get about the same work when no
            document sees another, the larger first; none = a step is in the order of the epoch.
        memory_bytes: Most bytes of blocks kept in memory.
    """

    def __init__(
        self,
        store: BlobStore,
        manifest: DatasetManifest,
        cache_folder: Path,
        *,
        batch: int,
        seed: int,
        groups: Sequence[int] = (),
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        self.manifest = manifest
        self.cache = BlockCache(store, cache_folder)
        self._batch = batch
        self._seed = seed
        self._groups = tuple(groups)
        self._memory_bytes = memory_bytes
        self._ends = np.array(list(accumulate(block.rows for block in manifest.train)))
        self._state = _ProcessState()

    def rows(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return rows `first` up to `first + count` of a step, shape (count, sequence + 1).

        Raises:
            DataError: A blob is missing or corrupted, or the store fails.
            ValueError: The rows do not lie within a step.
        """
        coming = self._here().prefetched.pop((step, first, count), None)
        return self._read((step, first, count)) if coming is None else coming.result()

    def prefetch(self, step: int, first: int, count: int) -> None:
        """Read in the background what `rows` with the same arguments will return.

        An error shows when the rows are asked for. Requests that nobody fetched are dropped, the
        oldest first.
        """
        state = self._here()
        request = (step, first, count)
        if request in state.prefetched:
            return
        while len(state.prefetched) >= _KEPT_REQUESTS:
            state.prefetched.pop(next(iter(state.prefetched))).cancel()
        future: Future[NDArray[np.int64]] = Future()
        state.prefetched[request] = future
        if state.thread is None:
            state.thread = threading.Thread(
                target=self._work, args=(state.requests,), name="cnai-prefetch", daemon=True
            )
            state.thread.start()
        state.requests.put((request, future))

    def validation(self, limit: int | None = None) -> NDArray[np.int64]:
        """Return the validation rows in a fixed order, at most `limit` of them."""
        wanted = self.manifest.validation_rows if limit is None else limit
        pieces = [np.empty((0, self.manifest.sequence + 1), dtype=np.int64)]
        for block in self.manifest.validation:
            if wanted <= 0:
                break
            pieces.append(self._unpacked(self.cache.block(block))[:wanted].astype(np.int64))
            wanted -= len(pieces[-1])
        return np.concatenate(pieces)

    def _work(self, requests: queue.SimpleQueue[tuple[Request, Future[NDArray[np.int64]]]]) -> None:
        while True:
            request, future = requests.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._read(request))
            except BaseException as error:  # noqa: BLE001 - handed to the caller of `rows`
                future.set_exception(error)

    def _read(self, request: Request) -> NDArray[np.int64]:
        step, first, count = request
        if step < 0 or first < 0 or count < 0 or first + count > self._batch:
            raise ValueError(f"rows {first} + {count} of step {step}: a step has {self._batch}")
        wanted = self._wanted(step, first, count)
        rows = np.empty((count, self.manifest.sequence + 1), dtype=np.int64)
        state = self._here()
        for index, here, places in self._by_block(wanted):
            rows[here] = self._picked(state, index, places)
        return rows

    def _wanted(self, step: int, first: int, count: int) -> NDArray[np.int64]:
        """Return which rows of the dataset stand at these places of a step."""
        begin, end = step * self._batch, (step + 1) * self._batch
        if not self._groups:
            begin, end = begin + first, begin + first + count
        wanted = rows_at(np.arange(begin, end), self.manifest.train_rows, self._seed)
        if not self._groups:
            return wanted
        return wanted[evened(self._work_of_these(wanted), self._groups)][first : first + count]

    def _by_block(
        self, wanted: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.int64]]]:
        """Yield each block that holds some of the rows, which they are, and their places in it."""
        blocks = np.searchsorted(self._ends, wanted, side="right")
        for index in np.unique(blocks).tolist():
            here = blocks == index
            yield (
                index,
                here,
                wanted[here] - (int(self._ends[index]) - self.manifest.train[index].rows),
            )

    def _work_of_these(self, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the work of rows; what was read once is kept, 4 bytes a row."""
        work = np.empty(len(wanted), dtype=WORK_DTYPE)
        known = self._here().work
        for index, here, places in self._by_block(wanted):
            if index not in known:
                content = self.cache.block(self.manifest.train_work[index])
                known[index] = np.frombuffer(content, dtype=WORK_DTYPE)
            work[here] = known[index][places]
        return work

    def _picked(self, state: _ProcessState, index: int, places: NDArray[np.int64]) -> Tokens:
        """Return rows of one block, from memory, single from its checked file, or loading it."""
        held = state.held.get(index)
        if held is None and index in state.checked:
            block = self.manifest.train[index]
            size = block.size_bytes // block.rows
            parts = [self.cache.part(block, place * size, size) for place in places.tolist()]
            whole = [part for part in parts if part is not None]
            if len(whole) == len(parts):
                return self._unpacked(b"".join(whole))
        rows = self._load(state, index) if held is None else held
        picked: Tokens = rows[places]
        return picked

    def _load(self, state: _ProcessState, index: int) -> Tokens:
        block = self.manifest.train[index]
        with state.lock:
            held = state.held.get(index)
            if held is not None:
                return held
            rows = self._unpacked(self.cache.block(block))
            state.checked.add(index)
            if state.held_bytes + block.size_bytes <= self._memory_bytes:
                state.held[index] = rows
                state.held_bytes += block.size_bytes
            return rows

    def _unpacked(self, content: bytes) -> Tokens:
        return unpack(content, sequence=self.manifest.sequence, dtype=self.manifest.dtype)

    def _here(self) -> _ProcessState:
        """Return the state of this process; a fork copies neither threads nor who holds a lock."""
        if self._state.process != os.getpid():
            self._state = _ProcessState()
        return self._state


class _ProcessState:
    """What a reader keeps in one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.held: dict[int, Tokens] = {}
        self.held_bytes = 0
        self.checked: set[int] = set()
        self.work: dict[int, NDArray[np.float32]] = {}
        self.prefetched: dict[Request, Future[NDArray[np.int64]]] = {}
        self.requests: queue.SimpleQueue[tuple[Request, Future[NDArray[np.int64]]]] = (
            queue.SimpleQueue()
        )
        self.thread: threading.Thread | None = None
