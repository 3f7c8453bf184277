"""What of a new folder is finished, so that an interrupted compression goes on where it was.

The journal lies beside the unfinished folder. Each file in it is named with a fingerprint of all
that decides its content and with the checksum of what was written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cnai.compress.folder.encode import TensorReport
from cnai.core.errors import DataError, Interrupted, RunError
from cnai.core.files import (
    PARTIAL,
    publish_folder,
    read_bytes,
    saving,
    sha256_of,
    sync_folder,
    write_atomically,
)  # fmt: skip
from cnai.core.records import decode, encode_pretty


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedShard:
    """A file that is whole on the disk."""

    name: str
    fingerprint: str
    size_bytes: int
    sha256: str
    tensors: tuple[TensorReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    shards: dict[str, FinishedShard] = field(default_factory=dict)


class UnfinishedFolder:
    """The folder in which a new model grows.

    Attributes:
        path: The folder.
    """

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f".{target.name}{PARTIAL}")
        self.journal = target.with_name(f".{target.name}.journal.json")
        self._target = target
        self._shards = self._known()
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def finished(self) -> tuple[FinishedShard, ...]:
        """Files that are whole."""
        return tuple(self._shards.values())

    def find(self, name: str, fingerprint: str) -> FinishedShard | None:
        """Return a file that was finished with the same content, after looking at it again."""
        shard, path = self._shards.get(name), self.path / name
        if shard is None or shard.fingerprint != fingerprint or not path.is_file():
            return None
        same = path.stat().st_size == shard.size_bytes and sha256_of(path) == shard.sha256
        return shard if same else None

    def record(self, shard: FinishedShard) -> None:
        """Remember a file that is whole and on the disk."""
        self._shards[shard.name] = shard
        write_atomically(self.journal, encode_pretty(_Journal(shards=self._shards)))

    def publish(self, target: Path | None = None) -> None:
        """Let the folder take its name, or another one, and forget the journal."""
        with saving(self.path):
            sync_folder(self.path)
            publish_folder(self.path, target or self._target)
            self.journal.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder and its journal."""
        self.journal.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def _known(self) -> dict[str, FinishedShard]:
        """Return what an earlier run finished; a journal that cannot be read counts for nothing."""
        if not (self.journal.is_file() and self.path.is_dir()):
            self.remove()
            return {}
        try:
            content = read_bytes(self.journal, hint="")
            return dict(decode(_Journal, content, where=str(self.journal)).shards)
        except DataError:
            self.remove()
            return {}


@contextmanager
def unfinished(target: Path) -> Iterator[UnfinishedFolder]:
    """Give the folder in which the model for `target` grows.

    When the block ends without `publish`, it is kept for the next run only when something in it is
    finished and what stopped the block may be gone by then.
    """
    with saving(target):
        folder = UnfinishedFolder(target)
        try:
            yield folder
        except (KeyboardInterrupt, Interrupted, RunError, OSError):
            if not folder.finished:
                folder.remove()
            raise
        except BaseException:
            folder.remove()
            raise
        if folder.path.exists():
            folder.remove()
