"""Data to calibrate and to measure on: read from whatever the user has, checked, made of one form.

data.npz           arrays named as the model's inputs, one row a sample; labels in `labels`
data.npy           the rows of the only input
folder/            such files, in the order of their names
data.jsonl         one sample a line: {"input": [...], "label": 3}
module:function    yields (inputs, label) or inputs; also file.py:function
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.guard.samples import Sample
from cnai.compress.runners import InputSpec
from cnai.core.errors import DataError, SpecError

LABELS = ("labels", "label", "y")
"""Names under which labels are looked for, unless an input has that name."""
_FORMS = "an .npz, .npy or .jsonl file, a folder of them, or `module:function`"


def read_samples(where: str, inputs: Sequence[InputSpec], *, flag: str) -> tuple[Sample, ...]:
    """Read data for a model.

    Args:
        where: A path or `module:function`.
        inputs: What the model takes.
        flag: The option it came from, for errors.

    Raises:
        SpecError: `where` is of no known form, or its function is not there.
        DataError: The data is missing, empty, damaged, or does not fit the model.
    """
    found = []
    for number, (feeds, label) in enumerate(_read(where, inputs, flag)):
        place = f"sample {number} of {where}"
        for sample_feeds, sample_label in _rows(feeds, label, inputs, place):
            found.append(Sample(feeds=sample_feeds, label=sample_label))
    if not found:
        raise DataError(f"`{where}` holds no samples", where=flag, hint=f"give {_FORMS}")
    labelled = sum(one.label is not None for one in found)
    if labelled not in {0, len(found)}:
        raise DataError(
            f"{labelled} of {len(found)} samples in `{where}` have a label",
            where=flag,
            hint="label all of them or none",
        )
    return tuple(found)


Row = tuple[dict[str, Any], Any]


def _read(where: str, inputs: Sequence[InputSpec], flag: str) -> Iterator[Row]:
    path = Path(where)
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix in {".npz", ".npy", ".jsonl"})
        for file in files:
            yield from _read_file(file, inputs, flag)
    elif path.is_file():
        yield from _read_file(path, inputs, flag)
    elif ":" in where:
        yield from _called(where, inputs, flag)
    else:
        raise DataError(f"there is no `{where}`", where=flag, hint=f"give {_FORMS}")


def _read_file(path: Path, inputs: Sequence[InputSpec], flag: str) -> Iterator[Row]:
    readers: dict[str, Callable[[Path, Sequence[InputSpec]], Iterator[Row]]] = {
        ".npz": _read_npz,
        ".npy": _read_npy,
        ".jsonl": _read_jsonl,
    }
    if path.suffix not in readers:
        raise SpecError(
            f"`{path.name}` is no known form of data", where=flag, hint=f"give {_FORMS}"
        )
    try:
        yield from readers[path.suffix](path, inputs)
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot read `{path.name}`: {error}",
            where=str(path),
            hint="write it again, with numpy.savez for instance; pickled objects are not read",
        ) from error


def _read_npz(path: Path, inputs: Sequence[InputSpec]) -> Iterator[Row]:
    # numpy leaves a file open that it cannot read.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    names = {_plain(one.name) for one in inputs}
    key = next((one for one in LABELS if one in arrays and one not in names), None)
    label = arrays.pop(key) if key else None
    yield _named(arrays, inputs), label


def _read_npy(path: Path, inputs: Sequence[InputSpec]) -> Iterator[Row]:
    values = np.load(path, allow_pickle=False)
    yield _named({"input": values}, inputs), None


def _read_jsonl(path: Path, inputs: Sequence[InputSpec]) -> Iterator[Row]:
    names = {_plain(one.name) for one in inputs}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError(f"line {number} is no object")
        key = next((one for one in LABELS if one in row and one not in names), None)
        label = row.pop(key) if key else None
        arrays = {
            name: np.array(value, dtype=object if _has_text(value) else None)
            for name, value in row.items()
        }
        yield _named(arrays, inputs), None if label is None else _Single(label)


@dataclass(frozen=True, slots=True)
class _Single:
    """The label of one sample, even if it is a list."""

    value: Any


def _has_text(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, str)


def function_of(where: str, *, flag: str) -> Callable[..., Any]:
    """Return the function that `module:function` or `file.py:function` names.

    Raises:
        SpecError: It is not there, or its module cannot be imported.
    """
    module, _, name = where.rpartition(":")
    try:
        found = getattr(_module(module), name)
    except (ImportError, AttributeError, OSError, SyntaxError) as error:
        raise SpecError(
            f"cannot take `{name}` from `{module}`: {error}",
            where=flag,
            hint="write `module:function` of an importable module, or `file.py:function`",
        ) from error
    if not callable(found):
        raise SpecError(f"`{where}` is no function", where=flag, hint="name a function")
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None:
            raise ImportError(f"`{name}` is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)


def _called(where: str, inputs: Sequence[InputSpec], flag: str) -> Iterator[Row]:
    produced: Iterable[Any] = function_of(where, flag=flag)()
    try:
        rows = iter(produced)
    except TypeError as error:
        raise SpecError(
            f"`{where}` returned {type(produced).__name__}, not samples",
            where=flag,
            hint="yield (inputs, label), where inputs is a dict of arrays by input name",
        ) from error
    for row in rows:
        feeds, label = row if isinstance(row, tuple) and len(row) == 2 else (row, None)
        if not isinstance(feeds, Mapping):
            feeds = {"input": feeds}
        arrays = {name: np.asarray(values) for name, values in feeds.items()}
        named = _named(arrays, inputs)
        single = label is not None and not (np.ndim(label) and _many(named, inputs))
        yield named, _Single(label) if single else label


def _many(feeds: Mapping[str, Any], inputs: Sequence[InputSpec]) -> bool:
    """Tell whether these are several samples in one array."""
    return any(
        np.ndim(feeds[one.name]) == len(one.shape) > 0
        and one.shape[0] is None
        and len(feeds[one.name]) > 1
        for one in inputs
    )


def _plain(name: str) -> str:
    return name.removesuffix(":0")


def _named(arrays: Mapping[str, Any], inputs: Sequence[InputSpec]) -> dict[str, Any]:
    """Give arrays the names of inputs; a single array belongs to a single input."""
    by_name = {_plain(name): values for name, values in arrays.items()}
    if len(by_name) == 1 and len(inputs) == 1:
        return {inputs[0].name: next(iter(by_name.values()))}
    missing = [one.name for one in inputs if _plain(one.name) not in by_name]
    if missing:
        raise DataError(
            f"the data has no array for the input `{missing[0]}`; it has "
            f"{', '.join(f'`{name}`' for name in sorted(by_name)) or 'none'}",
            where=missing[0],
            hint="name the arrays as the model's inputs: "
            + ", ".join(f"`{_plain(one.name)}`" for one in inputs),
        )
    return {one.name: by_name[_plain(one.name)] for one in inputs}


def _rows(
    feeds: Mapping[str, Any], label: Any, inputs: Sequence[InputSpec], place: str
) -> Iterator[Row]:
    """Divide arrays of many samples into single ones, each as the model takes it."""
    cast = {one.name: _cast(feeds[one.name], one, place) for one in inputs}
    counts = {one.name: _count(cast[one.name], one, place) for one in inputs}
    many = {count for count in counts.values() if count is not None}
    if len(many) > 1:
        raise DataError(
            f"the inputs have different numbers of samples: {counts}",
            where=place,
            hint="give every input one row a sample",
        )
    count = many.pop() if many else 1
    labels = _labels(label, count, place)
    for index in range(count):
        row = {
            one.name: _row(cast[one.name], one, index, counts[one.name] is not None)
            for one in inputs
        }
        yield row, labels[index]


def _labels(label: Any, count: int, place: str) -> list[Any]:
    if label is None:
        return [None] * count
    if isinstance(label, _Single) or np.ndim(label) == 0:
        label = [label.value if isinstance(label, _Single) else label]
    if len(label) != count:
        raise DataError(
            f"{len(label)} labels for {count} samples",
            where=place,
            hint="give one label a sample",
        )
    for one in label:
        if np.asarray(one).dtype.kind == "f" and not np.isfinite(np.asarray(one)).all():
            raise DataError(
                "a label is infinite or no number",
                where=place,
                hint="leave samples without a label out",
            )
    return list(label)


def _cast(values: Any, spec: InputSpec, place: str) -> NDArray[Any]:
    array = np.asarray(values)
    if spec.dtype == "str":
        return array.astype(object)
    wanted = np.dtype(spec.dtype)
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"`{spec.name}` holds {array.dtype}, the model takes {wanted}",
            where=place,
            hint="give arrays of numbers, all rows of one length",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(
            f"`{spec.name}` holds numbers that are infinite or none",
            where=place,
            hint="clean the data; a model's answer to them says nothing",
        )
    if array.dtype.kind == "f" and wanted.kind in "iu" and (array != np.rint(array)).any():
        raise DataError(
            f"`{spec.name}` holds fractions, the model takes {wanted}",
            where=place,
            hint="give whole numbers, or look whether it is another input's array",
        )
    return array.astype(wanted)


def _count(array: NDArray[Any], spec: InputSpec, place: str) -> int | None:
    """Return how many samples an array holds; None when it is one value for all of them."""
    rank = len(spec.shape)
    if rank == 0:
        return len(array) if array.ndim else None
    if array.ndim == rank:
        fixed = spec.shape[0]
        count = len(array) if fixed in {None, 1} else len(array) // fixed
        sound = _fits(array.shape[1:], spec.shape[1:])
    else:
        count = len(array) if array.ndim == rank + 1 else 1
        shape = array.shape[1:] if array.ndim == rank + 1 else (1, *array.shape)
        sound = array.ndim in {rank - 1, rank + 1} and _fits(shape, spec.shape)
    if not sound or count == 0:
        wanted = " x ".join("any" if size is None else str(size) for size in spec.shape)
        raise DataError(
            f"`{spec.name}` has the shape {' x '.join(map(str, array.shape))}, the model takes "
            f"{wanted}",
            where=place,
            hint="give one row a sample, each in the model's shape",
        )
    return count


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return all(size in {None, found} for found, size in zip(shape, wanted, strict=True))


def _row(array: NDArray[Any], spec: InputSpec, index: int, divided: bool) -> NDArray[Any]:
    rank = len(spec.shape)
    if not divided:
        return array
    if rank == 0:
        return np.asarray(array[index]) if array.ndim == 1 else array[index : index + 1]
    if array.ndim == rank - 1:
        return array[None]
    if array.ndim == rank + 1:
        return np.asarray(array[index])
    step = spec.shape[0] or 1
    return array[index * step : (index + 1) * step]
