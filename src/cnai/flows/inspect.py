"""`ai-cli inspect` and `ai-cli compare`: what is in a model, and how two of them differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cnai.compress import check_whole
from cnai.compress.compare import Comparison, compare
from cnai.compress.contents import FileInfo, contents_of
from cnai.flows.servable import servable

if TYPE_CHECKING:
    from cnai.compress.decoder import ModelInfo


def inspect_model(model: Path) -> ModelInfo:
    """List the tensors of a model folder, or of the smallest model of a run.

    Raises:
        DataError: There is no model, or it is broken.
    """
    from cnai.compress.decoder import inspect  # noqa: PLC0415 - it loads torch, which takes seconds

    folder = servable(model)
    check_whole(folder)
    return inspect(folder)


def inspect_file(model: Path) -> FileInfo:
    """List the weights of a model file or of a SavedModel.

    Raises:
        DataError: There is no model, or it is broken.
        SpecError: It has a format that is not read.
    """
    return contents_of(model)


def compare_models(first: Path, second: Path, data: Path | None) -> Comparison:
    """Run two model files on the same inputs.

    Raises:
        SpecError: They cannot be compared.
        DataError: A model or the data is missing, damaged or does not fit.
        RunError: No runtime is installed, or one of them does not run.
    """
    return compare(first, second, data)
