"""Blocks of a store on the local disk, checked, shared by the processes of a machine.

A file is named by the checksum that the manifest gives, so its name says what it must hold:
blocks of other datasets never mix with these, and no trailer is needed. Files appear by rename, so
a killed process leaves none half written. Nothing is ever evicted: when every epoch visits all
blocks in a new order, no policy beats keeping what came first, and least-recently-used is far
worse (Mohan et al. 2021, "Analyzing and Mitigating Data Stalls in DNN Training", the MinIO cache).
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cnai.core.blobs import BlobStore
from cnai.core.dataset import Block
from cnai.core.errors import DataError
from cnai.core.files import PARTIAL
from cnai.core.units import format_bytes
from cnai.data.pack import checksum

_LOG = logging.getLogger(__name__)
_ORPHAN_SECONDS = 3600
_FREE_SHARE = 0.05
_FREE_BYTES = 2 * 2**30


class BlockCache:
    """Reads blocks through a folder.

    A folder that is full or cannot be written is no error: blocks then come from the store each
    time, and a warning says so once. 2 GiB, or a twentieth of a smaller disk, are left free,
    because checkpoints may lie on it too.

    Attributes:
        fetched_blocks: Blocks that this object read from the store.
    """

    def __init__(self, store: BlobStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._writable = True
        self._swept = False
        self.fetched_blocks = 0

    def block(self, block: Block) -> bytes:
        """Return the whole content of a block, checked.

        Raises:
            DataError: The blob is missing or corrupted in the store, or the store fails.
        """
        content = self._cached(block)
        if content is not None:
            return content
        with self._one_fetcher(block):
            content = self._cached(block)
            return content if content is not None else self._fetch(block)

    def part(self, block: Block, start: int, length: int) -> bytes | None:
        """Return bytes of a cached file without checking them; None when they are not there."""
        try:
            handle = os.open(self._path(block), os.O_RDONLY)
        except OSError:
            return None
        try:
            content = os.pread(handle, length, start)
        finally:
            os.close(handle)
        return content if len(content) == length else None

    def _path(self, block: Block) -> Path:
        return self._folder / f"{block.checksum}.blk"

    def _cached(self, block: Block) -> bytes | None:
        path = self._path(block)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None
        if checksum(content) == block.checksum:
            return content
        _LOG.warning("cache file %s is damaged; reading the block from the store again", path)
        return None

    def _fetch(self, block: Block) -> bytes:
        content = self._store.get(block.key)
        self.fetched_blocks += 1
        if checksum(content) != block.checksum:
            raise DataError(
                f"blob `{block.key}` is corrupted: its checksum is wrong",
                where=self._store.url,
                hint="find all such blobs with `ai-cli data verify`; delete them and prepare the "
                "data again",
            )
        self._keep(block, content)
        return content

    def _keep(self, block: Block, content: bytes) -> None:
        if not self._writable:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if (free := _spare_bytes(self._folder)) < len(content):
                self._give_up(f"the disk is nearly full ({format_bytes(free)} to spare)")
                return
            if not self._swept:
                self._swept = True
                self._sweep()
            self._write(self._path(block), content)
        except OSError as error:
            self._give_up(error)

    def _sweep(self) -> None:
        """Remove what killed processes left unfinished long ago."""
        for path in self._folder.glob(f".*{PARTIAL}"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ORPHAN_SECONDS:
                    path.unlink()

    def _write(self, path: Path, content: bytes) -> None:
        """Write without fsync: a file torn by a power loss fails its check and is read again."""
        handle, name = tempfile.mkstemp(suffix=PARTIAL, prefix=".", dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)

    def _give_up(self, reason: OSError | str) -> None:
        if self._writable:
            _LOG.warning("the block cache at %s is off: %s", self._folder, reason)
        self._writable = False

    @contextmanager
    def _one_fetcher(self, block: Block) -> Iterator[None]:
        """Let one process of the machine fetch a block while the others wait for its file.

        The system drops the lock when its holder dies. Where the folder cannot hold locks, all
        fetch. Blocks that share a lock file wait for each other, which costs time, not truth.
        """
        handle = self._locked_file(f".lock-{block.checksum[:2]}")
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _locked_file(self, name: str) -> int | None:
        if not self._writable:
            return None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            self._give_up(error)
            return None
        return handle


def _spare_bytes(folder: Path) -> int:
    """Return how much may be written there before the disk counts as full."""
    disk = os.statvfs(folder)
    reserve = min(_FREE_BYTES, int(_FREE_SHARE * disk.f_blocks * disk.f_frsize))
    return max(0, disk.f_bavail * disk.f_frsize - reserve)
