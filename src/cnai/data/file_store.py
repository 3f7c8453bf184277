"""Blobs as files below a folder: a local disk or a mounted distributed file system.

Written in plain Python, not through obstore, because obstore does not survive a fork and a folder
has to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from cnai.core.blobs import BlobInfo
from cnai.core.errors import DataError, RunError
from cnai.core.files import PARTIAL, write_atomically


class FileStore:
    """A BlobStore in a folder, which is made by the first `put`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def url(self) -> str:
        """The folder as a `file://` URL."""
        return self._root.as_uri()

    def get(self, key: str) -> bytes:
        """Read a whole blob."""
        with self._reading(key):
            return self._path(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`; DataError when the blob ends before."""
        with self._reading(key), self._path(key).open("rb") as file:
            content = os.pread(file.fileno(), length, start)
        if len(content) < length:
            raise range_error(key, start, length, where=self.url)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Write a blob in one step; a full disk leaves the old one."""
        try:
            write_atomically(self._path(key), content)
        except RunError as error:
            raise DataError(
                f"store `{self.url}`: {error.message}",
                where=str(self._path(key)),
                hint="free space there, correct its permissions or choose another `data.store`, "
                "then run the same command again",
            ) from error

    def exists(self, key: str) -> bool:
        """Tell whether a blob is there."""
        return self._path(key).is_file()

    def list(self, prefix: str = "") -> list[BlobInfo]:
        """List blobs whose key starts with the prefix; unfinished files do not show."""
        folder = self._path(prefix.rpartition("/")[0] or ".")
        found = [
            BlobInfo(key=key, size_bytes=path.stat().st_size)
            for path in folder.rglob("*")
            if path.is_file()
            and not path.name.endswith(PARTIAL)
            and (key := path.relative_to(self._root).as_posix()).startswith(prefix)
        ]
        return sorted(found, key=lambda blob: blob.key)

    def delete(self, key: str) -> None:
        """Remove a blob; no error when it is absent."""
        with self._reading(key):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key)
        if parts.is_absolute() or ".." in parts.parts:
            raise DataError(
                f"key `{key}` leaves the store",
                where=self.url,
                hint="the manifest that names it is damaged or not ours; prepare the data again",
            )
        return self._root / parts

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise absent_error(key, where=self.url) from error
        except OSError as error:
            raise DataError(
                f"cannot use blob `{key}`: {error.strerror or error}",
                where=str(self._path(key)),
                hint="look at the permissions of the file and at the disk",
            ) from error


def absent_error(key: str, *, where: str) -> DataError:
    """Say that a store holds no such blob."""
    return DataError(
        f"no blob `{key}` in the store",
        where=where,
        hint="look at `data.store` and its prefix; data that was prepared elsewhere is not here",
    )


def range_error(key: str, start: int, length: int, *, where: str) -> DataError:
    """Say that a blob is shorter than what was asked of it."""
    return DataError(
        f"blob `{key}` ends before byte {start + length}",
        where=where,
        hint="the blob was cut or replaced; prepare the data again",
    )
