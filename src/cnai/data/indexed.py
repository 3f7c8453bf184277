"""Rows of a dataset of the user's own: anything with a length whose items are read by index.

The order is that of packed text (`order`): every epoch a shuffle of its own, a position that is
`step x batch`. Which items are kept for validation depends on their number and the share alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cnai.core.dataset import IndexedDataset
from cnai.core.errors import CnaiError, DataError
from cnai.data.order import permutation, rows_at

if TYPE_CHECKING:
    from cnai.core.batches import Column, Rows

_KEPT_REQUESTS = 4
_SAMPLED_ITEMS = 16
_SPLIT_SEED, _SPLIT_EPOCH = 2**31 - 1, 0

Request = tuple[int, int, int]


class Items(Protocol):
    """What a user's function returns: a map-style dataset, as torch's DataLoader takes them."""

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return an item: an array or number, or a tuple or dict of them."""
        ...


def describe(items: Items, *, source: str, validation_fraction: float) -> IndexedDataset:
    """Look at a dataset: how many items there are, and what they hold.

    Raises:
        DataError: It has no length or too few items, or they are no arrays.
    """
    train, validation = _split(_length(items, source), validation_fraction, source)
    count = len(train) + len(validation)
    sampled = np.unique(np.linspace(0, count - 1, _SAMPLED_ITEMS).astype(np.int64))
    rows = _columns(items, sampled, source)
    named = rows.items() if isinstance(rows, dict) else enumerate(rows)
    state = hashlib.sha256(f"{source} {count} {len(validation)}".encode())
    lines = []
    for name, column in named:
        lines.append(f"{name}: {column.dtype} {tuple(column.shape[1:])}")
        state.update(lines[-1].encode() + column.tobytes())
    return IndexedDataset(
        digest=state.hexdigest()[:16],
        source=source,
        train_rows=len(train),
        validation_rows=len(validation),
        columns=tuple(lines),
    )


class IndexedReader:
    """A BatchReader over a user's dataset; one thread reads ahead.

    An item must depend on its index alone; what is drawn at random in it differs from attempt to
    attempt.

    Args:
        source: Its name, for messages.
        batch: Rows in a step over all ranks.
        seed: Seed of the order.
    """

    def __init__(
        self, items: Items, *, source: str, validation_fraction: float, batch: int, seed: int
    ) -> None:
        self._items = items
        self._source = source
        self._batch = batch
        self._seed = seed
        self._train, self._validation = _split(_length(items, source), validation_fraction, source)
        self._ahead: dict[Request, Future[Rows]] = {}
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None

    def rows(self, step: int, first: int, count: int) -> Rows:
        """Return rows `first` up to `first + count` of a step, one array a column.

        Raises:
            DataError: An item cannot be read, or has not the shape of the others.
        """
        coming = self._ahead.pop((step, first, count), None)
        if coming is None or self._process != os.getpid():
            return self._read((step, first, count))
        return coming.result()

    def prefetch(self, step: int, first: int, count: int) -> None:
        """Read in the background what `rows` with the same arguments will return."""
        if self._process != os.getpid():  # a fork copies no thread
            self._process, self._thread, self._ahead = os.getpid(), None, {}
        request = (step, first, count)
        if request in self._ahead:
            return
        while len(self._ahead) >= _KEPT_REQUESTS:
            self._ahead.pop(next(iter(self._ahead))).cancel()
        self._thread = self._thread or ThreadPoolExecutor(1, "cnai-prefetch")
        self._ahead[request] = self._thread.submit(self._read, request)

    def validation(self, limit: int | None = None) -> Rows:
        """Return the validation rows in a fixed order, at most `limit` of them."""
        return _columns(self._items, self._validation[:limit], self._source)

    def _read(self, request: Request) -> Rows:
        step, first, count = request
        start = step * self._batch + first
        positions = np.arange(start, start + count, dtype=np.int64)
        wanted = self._train[rows_at(positions, len(self._train), self._seed)]
        return _columns(self._items, wanted, self._source)


def _split(count: int, fraction: float, source: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the items for training and those for validation, each in a fixed order."""
    kept = round(count * fraction)
    if count < 2 or not 0 < kept < count:
        raise DataError(
            f"`{source}` has {count} items, of which {kept} would be for validation",
            where="data.source",
            hint="give more items, or change `data.validation_fraction`",
        )
    order = permutation(count, _SPLIT_SEED, _SPLIT_EPOCH)
    return np.sort(order[kept:]), np.sort(order[:kept])


def _length(items: Items, source: str) -> int:
    length: int = _asked(lambda: len(items), source, "has no length")
    return length


def _columns(items: Items, places: NDArray[np.int64], source: str) -> Rows:
    """Read items and stack what they hold."""
    found: list[Any] = [_item(items, place, source) for place in places.tolist()]
    kinds = {type(one) if not isinstance(one, dict) else tuple(sorted(one)) for one in found}
    if len(kinds) != 1 or (isinstance(found[0], tuple) and len({len(one) for one in found}) > 1):
        raise _unlike(source, "the items do not all hold the same arrays")
    if isinstance(found[0], dict):
        return {name: _stacked([one[name] for one in found], source, name) for name in found[0]}
    return tuple(
        _stacked([one[place] for one in found], source, str(place))
        for place in range(len(found[0]))
    )


def _item(items: Items, index: int, source: str) -> dict[str, Any] | tuple[Any, ...]:
    item = _asked(lambda: items[index], source, f"cannot give item {index}")
    if isinstance(item, dict):
        return item
    return tuple(item) if isinstance(item, tuple | list) else (item,)


def _stacked(values: list[Any], source: str, name: str) -> Column:
    columns = [np.asarray(value) for value in values]
    shapes = {(column.shape, column.dtype.kind) for column in columns}
    if len(shapes) > 1:
        sizes = sorted({str(column.shape) for column in columns})
        raise _unlike(source, f"`{name}` has shapes {' and '.join(sizes[:2])}")
    if columns[0].dtype.kind not in "fiub":
        raise _unlike(source, f"`{name}` is no array of numbers but {type(values[0]).__name__}")
    return np.stack(columns)


def _unlike(source: str, message: str) -> DataError:
    return DataError(
        f"`{source}`: {message}",
        where="data.source",
        hint="an item is an array, or a tuple or dict of arrays, of the same shape in every item",
    )


def _asked(question: Callable[[], Any], source: str, message: str) -> Any:
    """Ask the user's code; what goes wrong in it is told with its own words."""
    try:
        return question()
    except CnaiError:
        raise
    except Exception as error:
        raise DataError(
            f"`{source}` {message}: {type(error).__name__}: {error}",
            where="data.source",
            hint="return a dataset with `__len__` and `__getitem__`, as torch's DataLoader takes",
        ) from error
