"""Reads weights in the `pack-quantized` form of compressed-tensors, INT8 with a scale a row.

A matrix `X.weight` of (out, in) lies in the file as `X.weight_packed`, four values in an int32 and
each shifted by 128, as `X.weight_scale` of (out, 1), and as `X.weight_shape`. The writer is in
`compress`; both keep to the format that transformers loads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cnai.core.errors import DataError

PACKED, SCALE, SIZE = "_packed", "_scale", "_shape"
SCHEME = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}


def is_packed(config: dict[str, Any], *, where: str) -> bool:
    """Tell from a `config.json` whether its weights are packed INT8; False when they are plain.

    Raises:
        DataError: They are quantized in another way.
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return False
    if not isinstance(quantization, dict) or not _is_ours(quantization):
        method = quantization.get("quant_method") if isinstance(quantization, dict) else "?"
        raise DataError(
            f"the model is quantized with `{method}` in a form that is not read",
            where=where,
            hint="give the model before quantization, or one in the compressed-tensors format "
            "`pack-quantized` with 8 bits and a scale a channel, as `ai-cli quantize` writes",
        )
    return True


def _is_ours(quantization: dict[str, Any]) -> bool:
    groups = quantization.get("config_groups")
    if quantization.get("format") != "pack-quantized" or not isinstance(groups, dict):
        return False
    weights = [group.get("weights") or {} for group in groups.values()]
    return all(entry.get(key) == value for entry in weights for key, value in SCHEME.items())


def unpack(packed: Tensor, scale: Tensor, columns: int) -> Tensor:
    """Return the float32 matrix (out, columns).

    Args:
        packed: int32 of (out, ceil(columns / 4)); the lowest byte is the first value.
        scale: Float of (out, 1).
        columns: Inputs of the layer.
    """
    shifted = packed.contiguous().view(torch.uint8)[:, :columns]
    return (shifted.float() - 128) * scale.float()
