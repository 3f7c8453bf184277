"""`ai-cli inspect`: what is in a model folder."""

from __future__ import annotations

from pathlib import Path

from cnai.compress import check_whole
from cnai.compress.decoder import ModelInfo, inspect
from cnai.flows.servable import servable


def inspect_model(model: Path) -> ModelInfo:
    """List the tensors of a model folder, or of the smallest model of a run.

    Raises:
        DataError: There is no model, or it is broken.
    """
    folder = servable(model)
    check_whole(folder)
    return inspect(folder)
