"""Reads weights in the forms of compressed-tensors that `ai-cli quantize` writes.

A matrix `X.weight` of (out, in) lies in the file in one of two ways. Packed (`pack-quantized`): as
`X.weight_packed`, with 4 or 8 bits a value, shifted to be positive, in int32, and as
`X.weight_shape`. Plain (`int-quantized`, `float-quantized`): as `X.weight` in int8 or float8 e4m3.
Both have scales `X.weight_scale` of (out, 1) or (out, in / group). The writer is in `compress`;
both keep to the format that transformers loads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cnai.core.errors import DataError

PACKED, SCALE, SIZE = "_packed", "_scale", "_shape"
_READ = "`pack-quantized` (4 or 8 bits), `int-quantized` or `float-quantized` (8 bits)"
_TOKENS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_CLASSES = {
    "Linear": re.compile(r"_proj$|\.w[123]$|(^|\.)lm_head$"),
    "Embedding": re.compile("embed_tokens$"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedScheme:
    """How the weight of a module is stored and used.

    Attributes:
        bits: Bits of a weight.
        targets: Modules: a class, a name, or a regular expression behind `re:`.
        rounds_inputs: The activations that meet it become INT8, with a scale a token.
    """

    bits: int
    targets: tuple[str, ...]
    rounds_inputs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Which modules of a model are stored how."""

    schemes: tuple[PackedScheme, ...]
    ignored: tuple[str, ...]

    def scheme(self, module: str) -> PackedScheme | None:
        """Return how a module's weight is stored, None when it is a plain float."""
        if _names(self.ignored, module):
            return None
        return next((one for one in self.schemes if _names(one.targets, module)), None)


def _names(targets: tuple[str, ...], module: str) -> bool:
    """Tell whether a module is meant; names and expressions go before classes."""
    return any(
        re.match(target.removeprefix("re:"), module) is not None
        if target.startswith("re:")
        else target == module or (target in _CLASSES and _CLASSES[target].search(module))
        for target in targets
    )


def packing_of(config: dict[str, Any], *, where: str) -> Packing | None:
    """Read from a `config.json` how weights are packed; None when they are plain.

    Raises:
        DataError: They are quantized in another way.
    """
    quantization = config.get("quantization_config")
    if quantization is None:
        return None
    try:
        groups = quantization["config_groups"].values()
        outer = quantization["format"]
        schemes = tuple(_scheme(group, group.get("format") or outer) for group in groups)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else "?"
        raise DataError(
            f"the model is quantized with `{method}` in a form that is not read",
            where=where,
            hint="give the model before quantization, or one in the compressed-tensors format "
            f"{_READ} with symmetric weights, as `ai-cli quantize` writes",
        ) from error
    return Packing(schemes=schemes, ignored=tuple(quantization.get("ignore") or ()))


def _scheme(group: dict[str, Any], form: str) -> PackedScheme:
    """Read one group.

    Raises:
        ValueError: It is in a form that is not read.
    """
    weights, inputs = group["weights"], group.get("input_activations")
    bits, kind = weights["num_bits"], weights["type"]
    known = {
        "pack-quantized": {(4, "int"), (8, "int")},
        "int-quantized": {(8, "int")},
        "float-quantized": {(8, "float")},
    }
    sound = (
        (bits, kind) in known.get(form, set())
        and weights.get("symmetric") is True
        and weights.get("strategy") in {"channel", "group"}
        and not group.get("output_activations")
    )
    if inputs is not None:
        sound &= all(inputs.get(key) == value for key, value in _TOKENS.items())
    if not sound:
        raise ValueError(form)
    return PackedScheme(
        bits=bits, targets=tuple(group["targets"]), rounds_inputs=inputs is not None
    )


def unpack(packed: Tensor, columns: int, *, bits: int) -> Tensor:
    """Return the values of packed numbers as int8 (out, columns).

    Args:
        packed: int32 of (out, words); the lowest bits are the first value.
        columns: Inputs of the layer.
    """
    bytes_ = packed.contiguous().view(torch.uint8)
    if bits == 4:
        bytes_ = torch.stack((bytes_ & 15, bytes_ >> 4), dim=-1).flatten(1)
    half = 1 << (bits - 1)
    return (bytes_[:, :columns].to(torch.int16) - half).to(torch.int8)


def matrix(
    read: Callable[[str], Tensor],
    stored: str,
    scheme: PackedScheme | None,
    *,
    packed: bool,
    where: str,
) -> Tensor:
    """Return the float32 weight that lies in the file in quantized form.

    Args:
        read: Returns a tensor of the file by its name.
        stored: Name of the weight.
        packed: Whether the values are packed into int32.

    Raises:
        DataError: The tensors of the file do not belong together.
    """
    try:
        return _matrix(read, stored, scheme, packed=packed)
    except ValueError as error:
        raise DataError(
            f"`{stored}` cannot be read: {error}",
            where=where,
            hint="the file is damaged; quantize the model again",
        ) from error


def _matrix(
    read: Callable[[str], Tensor], stored: str, scheme: PackedScheme | None, *, packed: bool
) -> Tensor:
    if scheme is None:
        raise ValueError("config.json does not say how it is quantized")
    scale = read(stored + SCALE)
    if not packed:
        return restored(read(stored), scale)
    rows, columns = (int(size) for size in read(stored + SIZE))
    words = read(stored + PACKED)
    if words.dtype != torch.int32 or words.shape != (rows, -(-columns * scheme.bits // 32)):
        raise ValueError(
            f"{words.dtype} of {tuple(words.shape)} does not hold {scheme.bits} bits of "
            f"{(rows, columns)}"
        )
    return restored(unpack(words, columns, bits=scheme.bits), scale)


def restored(values: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 matrix of values (out, in) and scales (out, groups)."""
    rows, columns = values.shape
    groups = scale.shape[1]
    if scale.shape[0] != rows or groups == 0 or columns % groups:
        raise ValueError(f"scales of {tuple(scale.shape)} for values of {(rows, columns)}")
    grouped = values.float().view(rows, groups, columns // groups)
    return (grouped * scale.float().unsqueeze(-1)).view(rows, columns)


def round_tokens(x: Tensor) -> Tensor:
    """Round activations (..., width) to INT8 with a scale a token, and back.

    The scale is that of compressed-tensors: the largest number over 127.5.
    """
    scale = x.abs().amax(dim=-1, keepdim=True) / 127.5
    scale = torch.where(scale == 0, 1.0, scale)
    return (x / scale).round().clamp(-128, 127) * scale


def round_inputs(module: nn.Module) -> Any:
    """Let a layer round the activations that it is given; returns a handle that undoes it."""
    return module.register_forward_pre_hook(lambda _module, inputs: (round_tokens(inputs[0]),))
