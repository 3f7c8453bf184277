"""A dataset of the user's own that a spec names as `package.module:function`."""

from __future__ import annotations

from cnai.core.dataset import IndexedDataset
from cnai.core.errors import DataError
from cnai.core.spec import RunSpec
from cnai.data import IndexedReader, describe
from cnai.flows.function import called


def describe_own(spec: RunSpec) -> IndexedDataset:
    """Call the function and look at what it returns.

    Raises:
        SpecError: It cannot be called.
        DataError: What it returns is no dataset.
    """
    items = called(spec.data.source, where="data.source")
    return describe(
        items, source=spec.data.source, validation_fraction=spec.data.validation_fraction
    )


def own_reader(spec: RunSpec, digest: str) -> IndexedReader:
    """Open the dataset for reading.

    Args:
        digest: Of the dataset that the run began with.

    Raises:
        SpecError: The function cannot be called.
        DataError: What it returns is no dataset, or another one than before.
    """
    items = called(spec.data.source, where="data.source")
    source, fraction = spec.data.source, spec.data.validation_fraction
    found = describe(items, source=source, validation_fraction=fraction)
    if found.digest != digest:
        raise DataError(
            f"`{source}` returns another dataset than the one that the run began with",
            where="data.source",
            hint="put the data back as it was, or start over with `--fresh`",
        )
    return IndexedReader(
        items,
        source=source,
        validation_fraction=fraction,
        batch=spec.train.batch,
        seed=spec.train.seed,
    )
