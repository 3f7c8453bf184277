"""From trained weights to an artifact in float32: a Hugging Face folder with its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cnai.compress.manifest import write_manifest
from cnai.compress.target import check_target, claimed
from cnai.core.artifact import Artifact, Precision
from cnai.core.errors import RunError
from cnai.core.files import folder_atomically
from cnai.core.shape import DecoderShape
from cnai.models.huggingface import HuggingFaceWeights, save_model
from cnai.models.initialise import parameter_sizes

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
        RunError: The target cannot be written, is being written, the disk is full, or what was
            written does not read back as it is.
    """
    target = target.resolve()
    check_target(target, needed_bytes=_FLOAT32_BYTES * shape.parameters)
    with claimed(target), folder_atomically(target) as folder:
        save_model(folder, shape, state, tokenizer_json)
        _check_values(folder, shape, state)
        return write_manifest(
            folder,
            target=target,
            source=source,
            precision=Precision.FP32,
            parameters=shape.parameters,
        )


def _check_values(folder: Path, shape: DecoderShape, state: Mapping[str, Tensor]) -> None:
    """Read every number back from the disk and hold it to the one that was to be written."""
    weights = HuggingFaceWeights(folder)
    for name in parameter_sizes(shape):
        written, meant = weights.tensor(name), state[name].detach().to("cpu", torch.float32)
        if not torch.equal(written.view(torch.int32), meant.contiguous().view(torch.int32)):
            raise RunError(
                f"parameter `{name}` does not read back as it was written",
                where=str(folder),
                hint="the disk or the memory of this machine is at fault; export to another disk",
            )
