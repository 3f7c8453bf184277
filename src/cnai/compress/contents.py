"""What a model file holds: its weights by use and type, and what is quantized already."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from cnai.compress.formats import Weight, open_model, recognise


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """The float constants of one use and number format.

    Attributes:
        use: The operation that consumes them; empty when it is none that multiplies weights.
        largest: Name of the largest.
    """

    use: str
    dtype: str
    weights: int
    parameters: int
    size_bytes: int
    largest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What a model file holds.

    Attributes:
        size_bytes: Of the file, or of all files of a folder.
        groups: The weights that are floats, the largest group first.
        quantized: How many constants of 8 bits or fewer it holds already.
    """

    path: str
    format: str
    size_bytes: int
    groups: tuple[WeightGroup, ...]
    quantized: int

    @property
    def parameters(self) -> int:
        """Numbers that are stored as floats."""
        return sum(group.parameters for group in self.groups)


def contents_of(source: Path) -> FileInfo:
    """List the weights of a model file.

    Raises:
        DataError: There is none, or it is damaged.
        SpecError: It has a format that is not read.
    """
    model = open_model(source)
    members: dict[tuple[str, str], list[Weight]] = defaultdict(list)
    for weight in model.weights():
        members[weight.use, weight.dtype].append(weight)
    groups = [_group(use, dtype, weights) for (use, dtype), weights in members.items()]
    groups.sort(key=lambda group: -group.size_bytes)
    return FileInfo(
        path=str(source),
        format=recognise(source),
        size_bytes=size_of(source),
        groups=tuple(groups),
        quantized=model.quantized(),
    )


def size_of(path: Path) -> int:
    """Return the bytes of a model file with the file of weights beside it, or of a folder."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    beside = path.with_name(f"{path.name}.data")
    return path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0)


def _group(use: str, dtype: str, weights: list[Weight]) -> WeightGroup:
    return WeightGroup(
        use=use,
        dtype=dtype,
        weights=len(weights),
        parameters=sum(one.size for one in weights),
        size_bytes=sum(one.size_bytes for one in weights),
        largest=max(weights, key=lambda one: one.size_bytes).name,
    )
