"""What runs a model file, so that its outputs can be compared before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input of a model.

    Attributes:
        shape: Sizes; None where any will do. An unknown rank is ().
        dtype: numpy's name of its type, `str` for strings.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str


class Runner(Protocol):
    """A model that was loaded by a runtime.

    Attributes:
        runtime: Name of the runtime with its version.
        inputs: What it takes.
        outputs: Names of what it gives.
    """

    runtime: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]

    def same_for(self, path: Path) -> Runner:
        """Load another model with the same runtime.

        Raises:
            RunError: It does not load there.
        """
        ...

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs in the order of `outputs`.

        Raises:
            RunError: The runtime cannot run the model with these inputs.
        """
        ...
