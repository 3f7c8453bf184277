"""The record that lies beside an artifact's files and proves that they are whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from cnai.core.artifact import Artifact, ArtifactFile, Precision, Quality
from cnai.core.errors import DataError
from cnai.core.files import read_bytes, saving, sha256_of
from cnai.core.records import decode, encode_pretty

MANIFEST_FILE = "manifest.json"


def write_manifest(
    folder: Path,
    *,
    target: Path,
    source: str,
    precision: Precision,
    parameters: int,
    quality: Quality | None = None,
    known: Mapping[str, str] | None = None,
) -> Artifact:
    """Describe the finished files of a folder, write that beside them and return it.

    The files lie in `folder` now and will lie at `target`.

    Args:
        known: Checksums of files that were taken when they were written.

    Raises:
        RunError: The folder cannot be written.
    """
    sums = known or {}
    with saving(folder):
        files = tuple(
            ArtifactFile(
                name=file.name,
                size_bytes=file.stat().st_size,
                sha256=sums.get(file.name) or sha256_of(file),
            )
            for file in sorted(folder.iterdir())
            if file.name != MANIFEST_FILE
        )
        artifact = Artifact(
            path=str(target),
            source=source,
            precision=precision,
            parameters=parameters,
            files=files,
            quality=quality,
        )
        (folder / MANIFEST_FILE).write_bytes(encode_pretty(artifact))
    return artifact


def check_whole(folder: Path) -> None:
    """Check a model folder of ours against its checksums; one of others has none.

    Raises:
        DataError: A file is missing or not as it was written.
    """
    if (folder / MANIFEST_FILE).is_file():
        read_artifact(folder)


def read_artifact(folder: Path) -> Artifact:
    """Read an artifact and check each of its files against its checksum.

    Returns:
        The record, with the folder where it lies now as its path.

    Raises:
        DataError: There is no manifest, or a file is missing or not as it was written.
    """
    path = folder / MANIFEST_FILE
    hint = "give a folder that `ai-cli quantize` or `ai-cli run` has made"
    artifact = decode(Artifact, read_bytes(path, hint=hint), where=str(path))
    for file in artifact.files:
        problem = _problem(folder / file.name, file)
        if problem is not None:
            raise DataError(
                f"`{file.name}` {problem}",
                where=str(folder / file.name),
                hint="copy the artifact again, or make it anew from its source "
                f"`{artifact.source}`",
            )
    return dataclasses.replace(artifact, path=str(folder))


def _problem(path: Path, file: ArtifactFile) -> str | None:
    if not path.is_file():
        return "is missing"
    size = path.stat().st_size
    if size != file.size_bytes:
        return f"has {size} bytes instead of {file.size_bytes}"
    if sha256_of(path) != file.sha256:
        return "does not have the content that was written"
    return None
