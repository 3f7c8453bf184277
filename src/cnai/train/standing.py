"""Where a rank stands: a page of memory that others read even when the rank is stuck or dead.

The page is a small file that the rank maps and writes in place, which costs about a microsecond and
no system call. A reader never needs an answer of the rank, so that one that was stopped, that hangs
in C code, or that is gone still tells its step and phase. A page that is read in the midst of being
written is torn; it says so by its two counters and is read again. Needs no torch.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cnai.core.batches import BatchReader

if TYPE_CHECKING:
    from cnai.core.batches import Rows

_FORMAT = struct.Struct("<Q q q d 16s 64s Q")
_TRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a page says.

    Attributes:
        moves: How often the rank wrote it; it grows while the rank goes on.
        step: Steps finished.
        since_unix: Begin of the phase.
    """

    moves: int
    pid: int
    step: int
    phase: str
    since_unix: float
    host: str


def page_of(folder: Path, rank: int) -> Path:
    """Return the file of a rank's page."""
    return folder / f"rank-{rank}.page"


class Page:
    """The page of this rank.

    Args:
        path: Its file; an older one is replaced, so that whoever has that one mapped is not hurt.
            Where no such file can be (a full disk, a mount that maps nothing), nobody can read the
            page and the rank goes on.
        step: Steps that are done already.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._memory = _mapped(path)
        self._host = socket.gethostname().encode()[:64]
        self._pid = os.getpid()
        self._moves = 0
        self._step = step
        self.enter("start")

    def enter(self, phase: str, *, step: int | None = None) -> None:
        """Begin a phase; `step` is the number of finished steps, where it has changed."""
        self._moves += 1
        self._step = self._step if step is None else step
        _FORMAT.pack_into(
            self._memory, 0, self._moves, self._pid, self._step, time.time(),
            phase.encode()[:16], self._host, self._moves,
        )  # fmt: skip


def _mapped(path: Path) -> mmap.mmap:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return mmap.mmap(-1, _FORMAT.size)
    try:
        # Written, not only made as long: on a full disk the first touch would kill the process.
        os.write(handle, bytes(_FORMAT.size))
        return mmap.mmap(handle, _FORMAT.size)
    except OSError:
        return mmap.mmap(-1, _FORMAT.size)
    finally:
        os.close(handle)


def read_page(path: Path) -> Standing | None:
    """Read a page; None when there is none or it was never whole."""
    for _ in range(_TRIES):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(content) != _FORMAT.size:
            continue
        moves, pid, step, since, phase, host, moves_again = _FORMAT.unpack(content)
        if moves == moves_again and moves:
            return Standing(
                moves=moves,
                pid=pid,
                step=step,
                since_unix=since,
                phase=phase.rstrip(b"\0").decode(errors="replace"),
                host=host.rstrip(b"\0").decode(errors="replace"),
            )
    return None


class PagedReader:
    """A reader of batches that notes on the page when the rank waits for data."""

    def __init__(self, reader: BatchReader, page: Page) -> None:
        self._reader = reader
        self._page = page

    def rows(self, step: int, first: int, count: int) -> Rows:
        """Return rows of the batch of a step."""
        self._page.enter("data")
        rows = self._reader.rows(step, first, count)
        self._page.enter("forward")
        return rows

    def prefetch(self, step: int, first: int, count: int) -> None:
        """Begin to read what `rows` will be asked for next."""
        self._reader.prefetch(step, first, count)

    def validation(self, limit: int | None = None) -> Rows:
        """Return the validation rows, at most `limit` of them."""
        self._page.enter("evaluate")
        return self._reader.validation(limit)
