"""From a source of text to packed tokens in a store, and back as batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnai.core.batches import BatchReader
from cnai.core.blobs import BlobStore
from cnai.core.dataset import Dataset, DatasetManifest, IndexedDataset
from cnai.core.errors import DataError
from cnai.core.layout import ParallelPlan
from cnai.core.runfolder import RunFolder
from cnai.core.spec import RunSpec
from cnai.data import (
    DatasetReader,
    PrepareOptions,
    list_datasets,
    load_manifest,
    open_store,
    prepare,
    verify,
)
from cnai.flows.listener import Listener
from cnai.flows.own_data import describe_own, own_reader
from cnai.flows.shape import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlace:
    """Where a packed dataset lies, small enough to hand to every rank.

    Attributes:
        url: Empty for a dataset of the user's own, which the spec names.
        separator: Token with which a document begins, where none is to see another.
    """

    url: str
    endpoint: str | None
    digest: str
    cache: str
    separator: int | None = None


def prepare_data(spec: RunSpec, run: RunFolder, listener: Listener) -> Dataset:
    """Pack the source of a spec; a second time it costs one pass over the text.

    A dataset of the user's own is only looked at.

    Raises:
        SpecError: The function that returns the dataset cannot be called.
        DataError: The source is missing, empty or no text, or the store refuses.
    """
    if spec.data.function:
        return describe_own(spec)
    return prepare(
        spec.data.source,
        store_of(spec, run),
        options=options_of(spec),
        progress=listener.fraction,
    )


def store_of(spec: RunSpec, run: RunFolder) -> BlobStore:
    """Open the store of a run's packed tokens."""
    return open_store(_url(spec, run), endpoint=spec.data.endpoint)


def options_of(spec: RunSpec) -> PrepareOptions:
    """Say to the data room what the spec says."""
    shape = shape_of(spec)
    tokenizer = spec.data.tokenizer
    if tokenizer is None and spec.model.huggingface is not None:
        tokenizer = str(Path(spec.model.huggingface) / "tokenizer.json")
    return PrepareOptions(
        text_field=spec.data.text_field,
        tokenizer=Path(tokenizer) if tokenizer else None,
        vocab=shape.vocab if shape else spec.model.vocab,
        sequence=shape.sequence if shape else spec.model.sequence,
        validation_fraction=spec.data.validation_fraction,
        block_rows=spec.data.block_rows,
    )


def place_of(spec: RunSpec, run: RunFolder, manifest: Dataset) -> DatasetPlace:
    """Say where a rank finds the dataset."""
    if isinstance(manifest, IndexedDataset):
        return DatasetPlace(url="", endpoint=None, digest=manifest.digest, cache="")
    return DatasetPlace(
        url=_url(spec, run),
        endpoint=spec.data.endpoint,
        digest=manifest.digest,
        cache=str(_cache(run)),
        separator=manifest.separator if spec.train.documents == "apart" else None,
    )


def reader_of(place: DatasetPlace, spec: RunSpec, plan: ParallelPlan) -> BatchReader:
    """Open a dataset for reading by the ranks of a plan."""
    if not place.url:
        return own_reader(spec, place.digest)
    store = open_store(place.url, endpoint=place.endpoint)
    manifest = load_manifest(store, place.digest)
    return DatasetReader(
        store,
        manifest,
        Path(place.cache),
        batch=spec.train.batch,
        seed=spec.train.seed,
        groups=() if place.separator is None else row_groups(plan),
    )


def row_groups(plan: ParallelPlan) -> tuple[int, int]:
    """Return the rows that are to be equal work: those of a data rank, and of a micro-batch."""
    return plan.microbatches * plan.microbatch_rows, plan.microbatch_rows


def reader_of_run(spec: RunSpec, run: RunFolder, manifest: Dataset) -> BatchReader:
    """Open the dataset of a run for reading; the store is asked only for blocks not cached."""
    if isinstance(manifest, IndexedDataset):
        return own_reader(spec, manifest.digest)
    train = spec.train
    return DatasetReader(
        store_of(spec, run), manifest, _cache(run), batch=train.batch, seed=train.seed
    )


def import_text(
    source: str, url: str, endpoint: str | None, options: dict[str, Any], listener: Listener
) -> DatasetManifest:
    """Pack a source of text into any store, outside a run.

    Args:
        options: Fields of PrepareOptions that differ from its defaults; None means the default.

    Raises:
        DataError: The source is missing, empty or no text, or the store refuses.
    """
    given = {key: value for key, value in options.items() if value is not None}
    listener.stage("data")
    store = open_store(url, endpoint=endpoint)
    return prepare(source, store, options=PrepareOptions(**given), progress=listener.fraction)


def datasets_of(url: str, endpoint: str | None) -> list[DatasetManifest]:
    """List the datasets of a store."""
    return list_datasets(open_store(url, endpoint=endpoint))


def problems_of(url: str, endpoint: str | None, digest: str) -> list[str]:
    """Check every block of the datasets of a store whose digest begins so.

    Raises:
        DataError: There is no such dataset, or the store fails.
    """
    store = open_store(url, endpoint=endpoint)
    chosen = [one for one in list_datasets(store) if one.digest.startswith(digest)]
    if not chosen:
        raise DataError(
            f"no dataset `{digest}` in the store" if digest else "the store holds no dataset",
            where=store.url,
            hint="list them with `ai-cli data list`, or make one with `ai-cli data import SOURCE`",
        )
    return [f"{one.digest}: {problem}" for one in chosen for problem in verify(store, one)]


def _cache(run: RunFolder) -> Path:
    return (run.root / "cache").absolute()


def _url(spec: RunSpec, run: RunFolder) -> str:
    return spec.data.store or str((run.root / "data").absolute())
