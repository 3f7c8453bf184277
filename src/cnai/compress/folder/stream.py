"""All files of a model folder, one after the other, into a folder that can be left and continued.

Memory holds a block of rows, whatever the model's size.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from cnai.compress.folder.checkpoint import Checkpoint, StoredTensor
from cnai.compress.folder.encode import Encoder, TensorReport, entries
from cnai.compress.folder.journal import FinishedShard, UnfinishedFolder
from cnai.compress.folder.scheme import new_config, scale_kind
from cnai.compress.folder.shard import written_shard
from cnai.compress.folder.treatment import Treatment
from cnai.core.files import saving, sha256_of
from cnai.core.llama_config import CONFIG_FILE
from cnai.core.model_folder import INDEX_FILE, write_json

Progress = Callable[[int, int], None]
"""Called with the bytes of the source that are done, and how many there are."""
_SIDE_SUFFIXES = {".json", ".jinja", ".model", ".txt", ".md"}
_OWN_FILES = {CONFIG_FILE, INDEX_FILE, "manifest.json", "report.json", "report.md"}
_SAMPLES, _SAMPLE_BYTES = 16, 65_536


def stream(
    checkpoint: Checkpoint,
    folder: UnfinishedFolder,
    chosen: Mapping[str, Treatment],
    progress: Progress = lambda _done, _total: None,
) -> tuple[TensorReport, ...]:
    """Write the whole new folder: weights, index, config and the source's tokenizer files.

    Files that an earlier run finished with the same content are kept.

    Raises:
        DataError: A weight is no finite number, or the source is damaged.
        RunError: The disk is full or the folder cannot be written.
    """
    total, done = checkpoint.size_bytes, 0
    kind = scale_kind(checkpoint.config)
    for name, tensors in checkpoint.shards.items():
        size = sum(tensor.size_bytes for tensor in tensors)
        fingerprint = _fingerprint(tensors, chosen, kind)
        if folder.find(name, fingerprint) is None:
            reports = _write_shard(
                folder.path / name, tensors, chosen, kind, _from(done, total, progress)
            )
            folder.record(_finished(folder.path / name, fingerprint, reports))
        done += size
        progress(done, total)
    _write_index(checkpoint, folder.path, chosen, kind)
    write_json(folder.path / CONFIG_FILE, new_config(checkpoint.config, chosen))
    _copy_side_files(checkpoint.folder, folder.path)
    held = {shard.name: shard for shard in folder.finished}
    return tuple(report for name in checkpoint.shards for report in held[name].tensors)


def _from(start: int, total: int, progress: Progress) -> Callable[[int], None]:
    return lambda part: progress(start + part, total)


def size_after(checkpoint: Checkpoint, chosen: Mapping[str, Treatment]) -> int:
    """Return how many bytes the new weights take."""
    kind = scale_kind(checkpoint.config)
    return sum(
        entry.size_bytes
        for tensor in checkpoint.tensors.values()
        for entry in entries(tensor, chosen[tensor.name], kind)
    )


def _write_shard(
    path: Path,
    tensors: tuple[StoredTensor, ...],
    chosen: Mapping[str, Treatment],
    kind: str,
    progress: Callable[[int], None],
) -> tuple[TensorReport, ...]:
    reports, done = [], 0
    new = [entry for one in tensors for entry in entries(one, chosen[one.name], kind)]
    with written_shard(path, new) as writer:
        encoder = Encoder(writer, kind)
        for tensor in tensors:
            progress(done)
            reports.append(encoder.encode(tensor, chosen[tensor.name]))
            done += tensor.size_bytes
    return tuple(reports)


def _finished(path: Path, fingerprint: str, reports: tuple[TensorReport, ...]) -> FinishedShard:
    return FinishedShard(
        name=path.name,
        fingerprint=fingerprint,
        size_bytes=path.stat().st_size,
        sha256=sha256_of(path),
        tensors=reports,
    )


def _fingerprint(
    tensors: tuple[StoredTensor, ...], chosen: Mapping[str, Treatment], kind: str
) -> str:
    """Hash what decides the content of a file; of the source's numbers samples from all over."""
    digest = hashlib.sha256(kind.encode())
    for tensor in tensors:
        said = (tensor.name, tensor.dtype, tensor.shape, tensor.start)
        digest.update(f"{said} {chosen[tensor.name].digest()}".encode())
    for file in sorted({tensor.file for tensor in tensors}):
        size = file.stat().st_size
        digest.update(str(size).encode())
        with file.open("rb") as opened:
            for sample in range(_SAMPLES):
                opened.seek(size * sample // _SAMPLES)
                digest.update(opened.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _write_index(
    checkpoint: Checkpoint, folder: Path, chosen: Mapping[str, Treatment], kind: str
) -> None:
    """Say which file holds which tensor, where the source says so too."""
    if not (checkpoint.folder / INDEX_FILE).exists():
        return
    places, total = {}, 0
    for name, tensors in checkpoint.shards.items():
        for tensor in tensors:
            for entry in entries(tensor, chosen[tensor.name], kind):
                places[entry.name] = name
                total += entry.size_bytes
    write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": places})


def _copy_side_files(source: Path, folder: Path) -> None:
    with saving(folder):
        for file in sorted(source.iterdir()):
            if file.is_file() and file.suffix in _SIDE_SUFFIXES and file.name not in _OWN_FILES:
                shutil.copyfile(file, folder / file.name)
