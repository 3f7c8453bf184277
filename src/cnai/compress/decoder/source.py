"""The model folder that compression starts from, opened or refused before any work."""

from __future__ import annotations

from pathlib import Path

from cnai.core.errors import DataError
from cnai.models.huggingface import HuggingFaceWeights

_KNOWN = {
    ".pb": "a TensorFlow graph",
    ".onnx": "an ONNX model",
    ".gguf": "a GGUF model",
    ".bin": "a pickle of weights",
    ".pt": "a pickle of weights",
    ".pth": "a pickle of weights",
    ".safetensors": "weights without their config",
}
_READ_TODAY = (
    "read today: the folder of a Llama, Mistral, Qwen2 or Qwen3 model in Hugging Face layout "
    "(config.json, *.safetensors); planned: .pb, .onnx, .gguf"
)


def open_source(source: Path) -> HuggingFaceWeights:
    """Open a model that can be compressed.

    Raises:
        DataError: There is none, it has a format or architecture that is not read, or it is
            compressed already.
    """
    if not source.exists():
        raise DataError(
            f"no model at `{source}`", where=str(source), hint=f"look at the path; {_READ_TODAY}"
        )
    if source.is_file():
        kind = _KNOWN.get(source.suffix.lower(), "a file")
        raise DataError(
            f"`{source.name}` is {kind}, which is not read", where=str(source), hint=_READ_TODAY
        )
    if (source / "saved_model.pb").exists():
        raise DataError(
            f"`{source.name}` is a TensorFlow SavedModel, which is not read",
            where=str(source),
            hint=_READ_TODAY,
        )
    weights = HuggingFaceWeights(source)
    if weights.packed:
        raise DataError(
            f"`{source}` is compressed already",
            where=str(source),
            hint="give the model that it was made from",
        )
    return weights
