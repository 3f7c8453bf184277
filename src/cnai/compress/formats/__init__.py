"""Model files: recognised by content, read and written without the framework they are of."""

from collections.abc import Callable
from pathlib import Path

from cnai.compress.formats.gguf_file import GgufFile
from cnai.compress.formats.graphdef import GraphDefFile
from cnai.compress.formats.onnx_file import OnnxFile
from cnai.compress.formats.recognise import Format, recognise
from cnai.compress.formats.saved_model import SavedModelFile
from cnai.compress.formats.weights import ModelFile, Weight
from cnai.core.errors import SpecError

_READERS: dict[Format, Callable[[Path], ModelFile]] = {
    Format.GRAPHDEF: GraphDefFile,
    Format.SAVED_MODEL: SavedModelFile,
    Format.ONNX: OnnxFile,
    Format.GGUF: GgufFile,
}
FILES = frozenset(_READERS)
"""Formats whose weights are changed in place. A new one is one file and one line above."""


def open_model(source: Path, target: Path | None = None) -> ModelFile:
    """Read a model file.

    Args:
        target: What will be written; only a SavedModel can become one of two formats.

    Raises:
        SpecError: It has a format that is not read in this way.
        DataError: There is none, or it is damaged.
    """
    kind = recognise(source)
    if kind not in _READERS:
        raise SpecError(
            f"`{source.name}` is a folder ({kind}); its weights are not changed in one file",
            where=str(source),
            hint="give it to `ai-cli quantize`, which knows what to do with it",
        )
    if kind is Format.SAVED_MODEL:
        return SavedModelFile(source, target)
    return _READERS[kind](source)


__all__ = ["FILES", "Format", "ModelFile", "Weight", "open_model", "recognise"]
