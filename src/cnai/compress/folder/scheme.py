"""`quantization_config` of a folder, as the library compressed-tensors 0.20 reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from cnai.compress.folder.selection import EMBEDDING, NO_MATRIX, NORM, ROUTER
from cnai.compress.folder.treatment import QUANTIZED, Form, Treatment

_FORMATS = {
    Form.W8A16: "pack-quantized",
    Form.W4A16: "pack-quantized",
    Form.W8A8: "int-quantized",
    Form.FP8: "float-quantized",
}
_DTYPES = {Form.BF16: "bfloat16", Form.FP16: "float16"}


def new_config(config: Mapping[str, Any], chosen: Mapping[str, Treatment]) -> dict[str, Any]:
    """Return the new `config.json`: that of the source with what loaders must know."""
    groups: dict[tuple[Form, int | None], list[str]] = defaultdict(list)
    for name, one in chosen.items():
        if one.form in QUANTIZED:
            groups[one.form, one.group].append(name.removesuffix(".weight"))
    if not groups:
        return _cast_config(config, chosen)
    return {**config, "quantization_config": _quantization(groups, chosen)}


def _quantization(
    groups: Mapping[tuple[Form, int | None], list[str]], chosen: Mapping[str, Treatment]
) -> dict[str, Any]:
    floats = [
        name.removesuffix(".weight")
        for name, one in chosen.items()
        if one.form not in QUANTIZED and name.endswith(".weight") and _may_be_linear(one)
    ]
    quantized = {module for modules in groups.values() for module in modules}
    ignore = sorted({*floats, *({"lm_head"} - quantized)})
    if any(one.reason == ROUTER for one in chosen.values()):
        ignore.append("re:.*[.]gate$")  # Loaders rename the modules of sparse layers.
    alone = len(groups) == 1 and not any("embed" in module for module in quantized)
    described = {
        f"group_{index}": _group(form, group, ["Linear"] if alone else sorted(modules))
        for index, ((form, group), modules) in enumerate(sorted(groups.items(), key=str))
    }
    formats = {group["format"] for group in described.values()}
    return {
        "quant_method": "compressed-tensors",
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "ignore": ignore,
        "config_groups": described,
    }


def _may_be_linear(one: Treatment) -> bool:
    return one.reason not in {NORM, EMBEDDING, NO_MATRIX}


def _group(form: Form, group: int | None, targets: list[str]) -> dict[str, Any]:
    weights: dict[str, Any] = {
        "num_bits": 4 if form is Form.W4A16 else 8,
        "type": "float" if form is Form.FP8 else "int",
        "symmetric": True,
        "strategy": "group" if group else "channel",
    }
    if group:
        weights["group_size"] = group
    described: dict[str, Any] = {
        "targets": targets, "weights": weights, "format": _FORMATS[form],
    }  # fmt: skip
    if form is Form.W8A8:
        described["input_activations"] = {
            "num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True,
        }  # fmt: skip
    return described


def _cast_config(config: Mapping[str, Any], chosen: Mapping[str, Treatment]) -> dict[str, Any]:
    form = next((one.form for one in chosen.values() if one.form in _DTYPES), None)
    if form is None:
        return dict(config)
    key = "torch_dtype" if "torch_dtype" in config and "dtype" not in config else "dtype"
    return {**config, key: _DTYPES[form]}


def scale_kind(config: Mapping[str, Any]) -> str:
    """Return the number format of scales: that in which loaders hold them.

    A scale in float16 could underflow, so such models get float32 ones.
    """
    said = config.get("dtype", config.get("torch_dtype"))
    return "BF16" if said == "bfloat16" else "F32"
