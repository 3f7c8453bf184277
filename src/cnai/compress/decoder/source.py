"""The model folder that compression starts from, opened or refused before any work."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.models.huggingface import HuggingFaceWeights

_READ = (
    "read is the folder of a Llama, Mistral, Qwen2, Qwen3, Mixtral or Qwen3-MoE model in Hugging "
    "Face layout (config.json, *.safetensors)"
)


def open_source(source: Path) -> HuggingFaceWeights:
    """Open a model that can be compressed.

    Raises:
        DataError: There is none, it has a format or architecture that is not read, or it is
            compressed already.
    """
    if not source.exists():
        raise DataError(
            f"no model at `{source}`", where=str(source), hint=f"look at the path; {_READ}"
        )
    if source.is_file():
        raise DataError(f"`{source.name}` is a file", where=str(source), hint=_READ)
    weights = HuggingFaceWeights(source)
    if weights.packed:
        raise DataError(
            f"`{source}` is compressed already",
            where=str(source),
            hint="give the model that it was made from",
        )
    return weights
