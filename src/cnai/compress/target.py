"""The folder that a compressed or exported model will take: may it be written, and by whom."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cnai.compress.manifest import MANIFEST_FILE
from cnai.core.errors import RunError, SpecError
from cnai.core.files import saving
from cnai.core.units import format_bytes

_ROOM = 1.1
_ELSEWHERE = "choose another folder for the new model, for instance with `--output-model FOLDER`"


def check_target(target: Path, *, needed_bytes: int, source: Path | None = None) -> None:
    """Refuse a target before any work is done.

    An existing folder is replaced only when it is empty or an artifact, so that a mistyped path
    costs nobody his files.

    Raises:
        SpecError: The target is the source, holds it, lies in it, is a file or holds other files.
        RunError: It cannot be written, or the disk has too little space.
    """
    if source is not None and _overlap(source.resolve(), target.resolve()):
        raise SpecError(
            f"the new model would overwrite its source `{source}`",
            where=str(target),
            hint=_ELSEWHERE,
        )
    if target.exists() and not target.is_dir():
        raise SpecError(f"`{target}` is a file", where=str(target), hint=_ELSEWHERE)
    if target.is_dir() and any(target.iterdir()) and not (target / MANIFEST_FILE).exists():
        raise SpecError(
            f"`{target}` holds files that are no artifact; it is not replaced",
            where=str(target),
            hint=_ELSEWHERE,
        )
    _check_place(target, needed_bytes=needed_bytes)


def _check_place(target: Path, *, needed_bytes: int) -> None:
    place = _existing(target.parent)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise RunError(f"cannot write in `{place}`", where=str(place), hint=_ELSEWHERE)
    free = shutil.disk_usage(place).free
    if free < needed_bytes * _ROOM:
        raise RunError(
            f"the new model needs about {format_bytes(needed_bytes)}, but only "
            f"{format_bytes(free)} are free",
            where=str(place),
            hint=f"free space, or {_ELSEWHERE}",
        )


def check_target_file(target: Path, *, source: Path, marks: Sequence[Path]) -> None:
    """Refuse a file to write before any work is done.

    Args:
        marks: Files that stand beside what we wrote; a file without them is nobody's to replace.

    Raises:
        SpecError: The target is the source, a folder, or a file that we did not write.
        RunError: It cannot be written, or the disk has too little space.
    """
    if source.resolve() == target.resolve():
        raise SpecError(
            f"the new model would overwrite its source `{source}`",
            where=str(target),
            hint=_ELSEWHERE,
        )
    if target.is_dir() and not source.is_dir():
        raise SpecError(
            f"`{target}` is a folder; a file was given, so a file is written",
            where=str(target),
            hint=f"for instance `--output-model {target / source.name}`",
        )
    if target.exists() and not all(mark.is_file() for mark in marks):
        raise SpecError(
            f"`{target}` is a file that `ai-cli quantize` did not write; it is not replaced",
            where=str(target),
            hint=_ELSEWHERE,
        )
    _check_place(target, needed_bytes=_bytes_of(source))


def _bytes_of(source: Path) -> int:
    """Return the bytes of a model file with those of its external data, or of a folder."""
    if source.is_dir():
        return sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    beside = [one for one in source.parent.glob(f"{source.name}*") if one.is_file()]
    return sum(one.stat().st_size for one in beside if one.suffix not in {".json", ".md"})


def _overlap(source: Path, target: Path) -> bool:
    return source == target or source in target.parents or target in source.parents


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


@contextmanager
def claimed(target: Path) -> Iterator[None]:
    """Keep a target for this process; the claim ends with the process, however it ends.

    Raises:
        RunError: Another process is writing it, or the folder above cannot be written.
    """
    path = target.with_name(f".{target.name}.lock")
    handle = _lock(path, target)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path, target: Path) -> int:
    """Lock the file of that name; the one opened may have lost it to its last holder by then."""
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(handle)
                raise RunError(
                    f"another process is writing `{target}`",
                    where=str(target),
                    hint="wait until it has finished, or choose another folder",
                ) from error
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
            os.close(handle)
