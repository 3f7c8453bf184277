"""From trained weights to an artifact in float32: a Hugging Face folder with its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from cnai.compress.manifest import write_manifest
from cnai.compress.target import check_target, claimed
from cnai.core.artifact import Artifact, Precision
from cnai.core.files import folder_atomically
from cnai.core.shape import DecoderShape
from cnai.models.huggingface import save_model

_FLOAT32_BYTES = 4


def export(
    target: Path,
    shape: DecoderShape,
    state: Mapping[str, Tensor],
    tokenizer_json: bytes,
    source: str,
) -> Artifact:
    """Write a model so that transformers, `ai-cli quantize` and `ai-cli serve` load it.

    Args:
        target: Folder of the artifact; one that stands there is replaced on success.
        shape: The model.
        state: Whole tensors by the decoder's names; a tied head may be left out.
        tokenizer_json: The tokenizer in the format of the `tokenizers` library.
        source: What the weights come from, for people.

    Raises:
        SpecError: The target is a file or holds other files.
        DataError: A parameter is missing or has another size.
        RunError: The target cannot be written, is being written, or the disk is full.
    """
    target = target.resolve()
    check_target(target, needed_bytes=_FLOAT32_BYTES * shape.parameters)
    with claimed(target), folder_atomically(target) as folder:
        save_model(folder, shape, state, tokenizer_json)
        return write_manifest(
            folder, target=target, source=source, precision=Precision.FP32, shape=shape
        )
