"""The datasets of a store: find, load, check and remove them."""

from __future__ import annotations

from cnai.core.blobs import BlobStore
from cnai.core.dataset import Block, DatasetManifest
from cnai.core.errors import DataError
from cnai.core.records import decode, encode_pretty
from cnai.core.units import format_bytes
from cnai.data.pack import checksum
from cnai.data.tokenizer import load_tokenizer

_MANIFEST = "manifest.json"


def manifest_key(digest: str) -> str:
    """Return where the manifest of a dataset lies."""
    return f"{digest}/{_MANIFEST}"


def save_manifest(store: BlobStore, manifest: DatasetManifest) -> None:
    """Publish a dataset whose blobs are all stored."""
    store.put(manifest_key(manifest.digest), encode_pretty(manifest))


def load_manifest(store: BlobStore, digest: str) -> DatasetManifest:
    """Read the manifest of a dataset.

    Raises:
        DataError: The store has no such dataset, or the manifest is damaged.
    """
    key = manifest_key(digest)
    if not store.exists(key):
        known = ", ".join(f"`{one}`" for one in _digests(store)) or "none"
        raise DataError(
            f"no dataset `{digest}` in the store",
            where=store.url,
            hint=f"the store holds {known}; prepare the data, or correct `data.store`",
        )
    manifest = decode(DatasetManifest, store.get(key), where=f"{store.url} blob `{key}`")
    if manifest.digest != digest:
        raise DataError(
            f"the manifest of `{digest}` is that of `{manifest.digest}`",
            where=f"{store.url} blob `{key}`",
            hint="someone copied it there; prepare the data again",
        )
    return manifest


def list_datasets(store: BlobStore) -> list[DatasetManifest]:
    """Return every dataset of the store; unfinished ones have no manifest and do not show."""
    return [load_manifest(store, digest) for digest in _digests(store)]


def verify(store: BlobStore, manifest: DatasetManifest) -> list[str]:
    """Read every blob and return what is wrong, a sentence each; empty when all is well."""
    blocks = (*manifest.train, *manifest.train_work, *manifest.validation)
    problems = [problem for block in blocks if (problem := _block_problem(store, block))]
    if not store.exists(manifest.tokenizer):
        problems.append(f"blob `{manifest.tokenizer}` is missing")
        return problems
    try:
        load_tokenizer(store.get(manifest.tokenizer), where=manifest.tokenizer)
    except DataError as error:
        problems.append(f"blob `{manifest.tokenizer}`: {error.message}")
    return problems


def discard(store: BlobStore, digest: str) -> None:
    """Remove a dataset: the manifest first, so that no reader finds half of it."""
    store.delete(manifest_key(digest))
    for blob in store.list(f"{digest}/"):
        store.delete(blob.key)


def _digests(store: BlobStore) -> list[str]:
    keys = (blob.key.split("/") for blob in store.list())
    return [parts[0] for parts in keys if len(parts) == 2 and parts[1] == _MANIFEST]


def _block_problem(store: BlobStore, block: Block) -> str | None:
    if not store.exists(block.key):
        return f"blob `{block.key}` is missing"
    content = store.get(block.key)
    if len(content) != block.size_bytes:
        found, wanted = format_bytes(len(content)), format_bytes(block.size_bytes)
        return f"blob `{block.key}` holds {found} instead of {wanted}"
    if checksum(content) != block.checksum:
        return f"blob `{block.key}` is corrupted: its checksum is wrong"
    return None
