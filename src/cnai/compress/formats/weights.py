"""What every model format offers to the quantizer: its weights, and a way to replace them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.recognise import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A float constant of a model.

    Attributes:
        name: Its name, unique in the model.
        use: The operation that consumes it (`Conv2D`, `MatMul`, `Gather`); empty when it is none
            of those that multiply weights with activations or look rows up.
        dtype: numpy's name of its number format.
        axes: Axes that count output channels of that operation; None = not known.
    """

    name: str
    use: str
    shape: tuple[int, ...]
    dtype: str
    axes: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes now."""
        return self.size * (
            2 if self.dtype in {"float16", "bfloat16"} else np.dtype(self.dtype).itemsize
        )


class ModelFile(Protocol):
    """A model that was read, and can be changed and written in the same format.

    Attributes:
        overhead_bytes: About what the nodes take that turn a quantized weight back into floats.
    """

    format: Format
    overhead_bytes: int

    def weights(self) -> Iterator[Weight]:
        """Yield every float constant, in the order of the file."""
        ...

    def read(self, weight: Weight) -> NDArray[np.floating]:
        """Return the numbers of a weight.

        Raises:
            DataError: They are damaged.
        """
        ...

    def replace(self, weight: Weight, new: QuantizedArray | NDArray[np.float16]) -> None:
        """Let the model hold a smaller weight, turned back into floats where it is used."""
        ...

    def quantized(self) -> int:
        """Return how many INT8 constants of some size it holds already."""
        ...

    def save(self, target: Path) -> None:
        """Write the model; the target appears whole or not at all.

        Raises:
            RunError: The disk is full or the folder cannot be written.
        """
        ...
