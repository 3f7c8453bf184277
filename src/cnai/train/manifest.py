"""The list of files beside a checkpoint by which damage is found. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cnai.core.artifact import ArtifactFile
from cnai.core.errors import DataError
from cnai.core.files import read_bytes, sha256_of
from cnai.core.records import decode
from cnai.core.runfolder import RunFolder

MANIFEST = "checkpoint.json"
_HINT = "choose another checkpoint (`ls checkpoints/` in the run folder), or train again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """What a checkpoint consists of, and the plan under which it was written.

    Attributes:
        base: Identity of the frozen model that the weights in it belong to; None when it holds
            the whole model.
    """

    step: int
    plan_digest: str
    files: tuple[ArtifactFile, ...]
    base: str | None = None

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)


def list_files(folder: Path) -> tuple[ArtifactFile, ...]:
    """Measure and hash the files of a checkpoint folder, sorted by name."""
    return tuple(
        ArtifactFile(name=file.name, size_bytes=file.stat().st_size, sha256=sha256_of(file))
        for file in sorted(folder.iterdir())
        if file.name != MANIFEST
    )


def read_manifest(folder: Path) -> CheckpointManifest:
    """Return the manifest of a checkpoint without looking at its files.

    Raises:
        DataError: There is none, or it is damaged.
    """
    path = folder / MANIFEST
    return decode(CheckpointManifest, read_bytes(path, hint=_HINT), where=str(path))


def verify_checkpoint(folder: Path) -> CheckpointManifest:
    """Return the manifest of a whole checkpoint.

    Raises:
        DataError: A file is missing, cut or changed.
    """
    manifest, hint = read_manifest(folder), _HINT
    for file in manifest.files:
        here = folder / file.name
        if not here.is_file():
            raise DataError(f"checkpoint lacks `{file.name}`", where=str(folder), hint=hint)
        size = here.stat().st_size
        if size != file.size_bytes:
            raise DataError(
                f"checkpoint file `{file.name}` has {size} bytes instead of {file.size_bytes}",
                where=str(folder),
                hint=hint,
            )
        if sha256_of(here) != file.sha256:
            raise DataError(
                f"checkpoint file `{file.name}` is damaged: its SHA-256 differs",
                where=str(folder),
                hint=hint,
            )
    return manifest


def check_base(manifest: CheckpointManifest, base: str | None, *, where: Path) -> None:
    """Refuse adapters that were trained beside another model.

    Raises:
        DataError: The frozen model has changed since, or is another one.
    """
    if manifest.base != base:
        raise DataError(
            f"the checkpoint was trained beside `{manifest.base}`, but the frozen model is "
            f"`{base}` now",
            where=str(where),
            hint="put the model back as it was (`model.huggingface`), or start over with `--fresh`",
        )


def newest_whole(run: RunFolder) -> tuple[int, list[DataError]]:
    """Find the step to go on from.

    Returns:
        The newest step with an undamaged checkpoint, 0 when there is none at all, and the reasons
        why newer ones were passed over.

    Raises:
        DataError: There are checkpoints and every one is damaged; starting again from nothing is
            for the user to decide.
    """
    rejected: list[DataError] = []
    for step in reversed(run.checkpoint_steps()):
        try:
            verify_checkpoint(run.checkpoint(step))
        except DataError as error:
            rejected.append(error)
        else:
            return step, rejected
    if rejected:
        raise DataError(
            f"no checkpoint of run `{run.name}` is whole; the newest: {rejected[0].message}",
            where=rejected[0].where,
            hint="start over with `--fresh`, which keeps the old folder under another name",
        )
    return 0, rejected
