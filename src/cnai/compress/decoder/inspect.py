"""What a model folder holds: its tensors by kind and number format, read from the files' heads."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from cnai.core.llama_config import read_config
from cnai.models.huggingface import parameter_name, tensor_files
from cnai.models.packed import PACKED, SCALE, SIZE

_NAMES = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint"}
_KINDS = ("embedding", "attention", "ffn", "norm", "head", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """The tensors of one kind and number format.

    Attributes:
        kind: `embedding`, `attention`, `ffn`, `norm`, `head`, or `other`.
        tensors: How many there are; a packed one counts once.
        size_bytes: Bytes in the files, scales included.
    """

    kind: str
    dtype: str
    tensors: int
    parameters: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a model folder holds."""

    path: str
    architecture: str
    groups: tuple[TensorGroup, ...]

    @property
    def parameters(self) -> int:
        """Parameters, a tied head not counted again."""
        return sum(group.parameters for group in self.groups)

    @property
    def size_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(group.size_bytes for group in self.groups)


def inspect(folder: Path) -> ModelInfo:
    """List the tensors of a folder of safetensors, of whatever architecture.

    Raises:
        DataError: There is no config.json, no weights, or a file is damaged.
    """
    architecture = str(read_config(folder).get("model_type", "unknown"))
    members: dict[tuple[str, str], list[TensorGroup]] = defaultdict(list)
    for part in _parts(folder):
        members[part.kind, part.dtype].append(part)
    groups = [
        TensorGroup(
            kind=kind,
            dtype=dtype,
            tensors=sum(part.tensors for part in parts),
            parameters=sum(part.parameters for part in parts),
            size_bytes=sum(part.size_bytes for part in parts),
        )
        for (kind, dtype), parts in members.items()
    ]
    groups.sort(key=lambda group: (_KINDS.index(group.kind), group.dtype))
    return ModelInfo(path=str(folder), architecture=architecture, groups=tuple(groups))


def _parts(folder: Path) -> Iterator[TensorGroup]:
    """Yield each stored tensor as a group of its own."""
    files = tensor_files(folder)
    for file in sorted(set(files.values())):
        with safe_open(file, framework="np") as opened:
            for name in opened.keys():  # noqa: SIM118 - a file of tensors is no dict
                if files[name] == file:
                    yield _part(opened, name, set(files))


def _part(opened: Any, name: str, names: set[str]) -> TensorGroup:
    """Describe a tensor; of a quantized weight's, one counts as the weight."""
    base = _base(name)
    count, kind, size = _head(opened, name)
    counts = True
    if base + PACKED in names:
        counts, count, kind = name.endswith(SIZE), 0, _packed_kind(opened, base)
        if counts:
            count = math.prod(int(side) for side in opened.get_tensor(name))
    elif base + SCALE in names:
        counts, kind = name == base, _head(opened, base)[1]
        count = count if counts else 0
    return TensorGroup(
        kind=_kind(base), dtype=kind, tensors=int(counts), parameters=count, size_bytes=size
    )


def _head(opened: Any, name: str) -> tuple[int, str, int]:
    """Return the numbers, the number format and the bytes of a stored tensor."""
    piece = opened.get_slice(name)
    count = math.prod(piece.get_shape())
    kind, bits = re.fullmatch(r"([A-Z]+)([0-9]*).*", piece.get_dtype()).groups()  # type: ignore[union-attr]  # safetensors knows no other names
    return count, f"{_NAMES.get(kind, kind.lower())}{bits}", count * int(bits or 8) // 8


def _packed_kind(opened: Any, base: str) -> str:
    """Tell from the width of the words whether they hold eight bits or four."""
    columns = int(opened.get_tensor(base + SIZE)[1])
    words = opened.get_slice(base + PACKED).get_shape()[1]
    return "int8" if words == -(-columns // 4) else "int4"


def _base(name: str) -> str:
    """Return the name of the parameter that a stored tensor belongs to."""
    for suffix in (PACKED, SCALE, SIZE):
        name = name.removesuffix(suffix)
    return name


def _kind(stored: str) -> str:
    ours = parameter_name(stored)
    if ours is None:
        return "other"
    parts = ours.split(".")
    kind = parts[2] if parts[0] == "layers" else parts[0]
    return "norm" if kind.endswith("norm") else kind
