"""A model folder made small without being run: its code is not known, or it is too large here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cnai.compress.folder.checkpoint import Checkpoint
from cnai.compress.folder.journal import unfinished
from cnai.compress.folder.report import FolderReport, precision_of, write_folder_report
from cnai.compress.folder.selection import FolderWish, select
from cnai.compress.folder.stream import size_after, stream
from cnai.compress.manifest import write_manifest
from cnai.compress.target import check_target, claimed
from cnai.core.artifact import Artifact
from cnai.core.errors import DataError


def open_folder(source: Path) -> Checkpoint:
    """Open a model folder of whatever architecture.

    Raises:
        DataError: There is none, it is damaged, or it is compressed already.
    """
    if source.is_file():
        raise DataError(
            f"`{source.name}` is a file",
            where=str(source),
            hint="give the folder that holds config.json and *.safetensors",
        )
    checkpoint = Checkpoint(source)
    if checkpoint.is_compressed:
        raise DataError(
            f"`{source}` is compressed already",
            where=str(source),
            hint="give the model that it was made from",
        )
    return checkpoint


def quantize_unmeasured(
    source: Path,
    target: Path,
    wish: FolderWish,
    *,
    why: str,
    command: str = "",
    progress: Callable[[str, int, int], None] = lambda _stage, _done, _total: None,
) -> Artifact:
    """Compress the weights of a folder, file by file.

    Args:
        why: Why nothing is measured; a sentence for the report.
        progress: Called with `quantize`, the bytes done and how many there are.

    Raises:
        SpecError: The target makes no sense, or nothing can become smaller.
        DataError: The source is damaged, compressed already, or a weight is no finite number.
        RunError: The target cannot be written, is being written, or the disk is full. What was
            finished is taken up by the next run.
    """
    start = time.monotonic()
    checkpoint = open_folder(source)
    chosen = select(checkpoint, wish)
    target = target.resolve()
    check_target(target, source=source, needed_bytes=0)
    with claimed(target), unfinished(target) as folder:
        done = sum(shard.size_bytes for shard in folder.finished)
        needed = max(0, size_after(checkpoint, chosen) - done)
        check_target(target, source=source, needed_bytes=needed)
        tensors = stream(checkpoint, folder, chosen, lambda *at: progress("quantize", *at))
        report = FolderReport(
            source=str(source),
            target=str(target),
            precision=precision_of(tensors),
            before_bytes=checkpoint.size_bytes,
            after_bytes=sum(one.after_bytes for one in tensors),
            tensors=tensors,
            notes=(why,),
            seconds=time.monotonic() - start,
            command=command,
        )
        write_folder_report(report, folder.path)
        artifact = write_manifest(
            folder.path,
            target=target,
            source=str(source),
            precision=report.precision,
            parameters=checkpoint.parameters,
            known={shard.name: shard.sha256 for shard in folder.finished},
        )
        folder.publish()
    return artifact
