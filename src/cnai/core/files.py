"""Files that are either whole or absent: write to a temporary name, flush, rename."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cnai.core.errors import CnaiError, DataError, RunError

PARTIAL = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file in one step; after a crash the old content or the new one is there.

    Raises:
        RunError: The folder cannot be written or the disk is full; the old file is untouched.
    """
    with file_atomically(path) as file:
        file.write(content)


@contextmanager
def file_atomically(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write that takes its name when the block ends well.

    Raises:
        RunError: The folder cannot be written or the disk is full; the old file is untouched.
    """
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync(path.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def folder_atomically(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path` that takes its name when the block ends well.

    A folder that already stands there is replaced only then. When the block fails the temporary
    folder is removed and whatever stood at `path` stays.
    """
    partial = path.with_name(f".{path.name}{PARTIAL}")
    with saving(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            sync_folder(partial)
            publish_folder(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def publish_folder(partial: Path, path: Path) -> None:
    """Let a finished folder take its final name, replacing one that stands there.

    Where the file system can, the two change names in one step, so that there is no moment without
    a folder at `path`.
    """
    if not path.exists():
        partial.rename(path)
    elif _exchange(partial, path):
        shutil.rmtree(partial)
    else:
        old = path.with_name(f".{path.name}.old{PARTIAL}")
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
        partial.rename(path)
        shutil.rmtree(old)
    _sync(path.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names (renameat2 of Linux); False where this is not known."""
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(swap(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def sync_folder(folder: Path) -> None:
    """Flush every file below the folder, and the folder, to the disk."""
    for file in folder.rglob("*"):
        _sync(file)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turn the operating system's reasons for a failed write into an error with a repair."""
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


def write_error(error: OSError, path: Path) -> CnaiError:
    """Say why a write failed and what to do about it."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return RunError(
            f"no space left while writing `{path.name}`",
            where=str(path),
            hint="free space or choose another place with `--set output=FOLDER`, then run the "
            "same command again; what was finished is kept",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return RunError(
            f"cannot write `{path.name}`: {os.strerror(error.errno)}",
            where=str(path.parent),
            hint="choose a folder that you may write; for a run `--set output=FOLDER`",
        )
    return RunError(
        f"cannot write `{path.name}`: {error}",
        where=str(path),
        hint="look at the path and the disk, then run the same command again",
    )


def read_bytes(path: Path, *, hint: str) -> bytes:
    """Read a whole file.

    Raises:
        DataError: The file is missing or cannot be read; `hint` says what to do.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(f"cannot read `{path}`: {reason}", where=str(path), hint=hint) from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
