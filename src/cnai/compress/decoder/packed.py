"""Writes a model in the `pack-quantized` form of compressed-tensors; the reader is in `models`.

The projections of the layers become INT8. The embedding and an untied head stay floats, because
loaders of the format look a token's row up in a float table; they are rounded to bfloat16, which
is finer than INT8 and half of float32. Norms stay float32. Source: the format of the library
compressed-tensors 0.20 (vllm-project/compressed-tensors), which transformers loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from cnai.compress.decoder.int8 import refuse_non_finite
from cnai.compress.decoder.matrix import QuantizedMatrix, Quantizer
from cnai.core.files import saving
from cnai.core.llama_config import CONFIG_FILE, read_config
from cnai.core.shape import DecoderShape
from cnai.models.huggingface import (
    INDEX_FILE,
    WEIGHTS_FILE,
    HuggingFaceWeights,
    is_stacked,
    named_pieces,
    write_json,
    write_tensors,
)
from cnai.models.initialise import parameter_sizes
from cnai.models.packed import PACKED, SCALE, SCHEME, SIZE

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""

_SIDE_SUFFIXES = {".json", ".jinja", ".model", ".txt", ".md"}
_OWN_FILES = {CONFIG_FILE, INDEX_FILE, "manifest.json"}


def write_packed(
    folder: Path, weights: HuggingFaceWeights, quantizer: Quantizer, progress: Progress
) -> None:
    """Write config, weights and the source's tokenizer files into an existing folder.

    The quantized model is held in memory, the source one tensor at a time.

    Raises:
        DataError: A weight is no finite number, or the source is damaged.
        RunError: The disk is full or the folder cannot be written.
    """
    names = parameter_sizes(weights.shape)
    tensors: dict[str, Tensor] = {}
    for done, name in enumerate(names):
        progress("quantize", done, len(names))
        whole = weights.tensor(name)
        for stored, piece in named_pieces(name, whole, weights.shape):
            tensors |= _stored(name, stored, piece, quantizer)
    progress("quantize", len(names), len(names))
    write_tensors(folder / WEIGHTS_FILE, tensors)
    config = read_config(weights.folder)
    write_json(
        folder / CONFIG_FILE,
        config | {"quantization_config": _quantization(sparse=weights.shape.experts > 0)},
    )
    _copy_side_files(weights.folder, folder)


def _stored(name: str, stored: str, weight: Tensor, quantizer: Quantizer) -> dict[str, Tensor]:
    """Return the tensors that stand for one parameter, or one expert's part of it, in the file."""
    if is_quantized(name):
        return packed_tensors(stored, quantizer(stored if is_stacked(name) else name, weight))
    refuse_non_finite(name, weight)
    return {stored: weight if weight.ndim == 1 else weight.to(torch.bfloat16)}


def is_quantized(name: str) -> bool:
    """Tell whether a parameter becomes INT8: the matrices of each layer do, a router does not."""
    return name.endswith("_proj.weight") or is_stacked(name)


def packed_tensors(stored: str, matrix: QuantizedMatrix) -> dict[str, Tensor]:
    """Return the three tensors of a matrix under its Hugging Face name."""
    return {
        stored + PACKED: pack(matrix.values),
        stored + SCALE: matrix.scale.float(),
        stored + SIZE: torch.tensor(matrix.values.shape),
    }


def pack(values: Tensor) -> Tensor:
    """Pack int8 (out, in) into int32 (out, ceil(in / 4)), the first value in the lowest byte."""
    shifted = (values.to(torch.int16) + 128).to(torch.uint8)
    padded = F.pad(shifted, (0, -shifted.shape[1] % 4))
    return padded.contiguous().view(torch.int32)


def packed_bytes(shape: DecoderShape) -> int:
    """Return about how many bytes the weights will take on the disk, at most 5 % too few."""
    dense, sparse = shape.layers - shape.sparse_layers, shape.sparse_layers
    matrices = shape.layers * shape.attention_parameters + dense * shape.ffn_parameters
    matrices += sparse * shape.experts * shape.expert_parameters
    return matrices + 2 * (shape.parameters - matrices)


def _quantization(*, sparse: bool) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"] + (["re:.*[.]gate$"] if sparse else []),
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": SCHEME}},
    }


def _copy_side_files(source: Path, folder: Path) -> None:
    with saving(folder):
        for file in sorted(source.iterdir()):
            if file.is_file() and file.suffix in _SIDE_SUFFIXES and file.name not in _OWN_FILES:
                shutil.copyfile(file, folder / file.name)
