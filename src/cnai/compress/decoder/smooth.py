"""Moves the reach of activations into the weights behind a norm, which changes no output.

Where a few channels of the activations are far larger than the others, a scale a token rounds the
others coarsely; dividing a channel in the norm and multiplying the weights by the same evens that.
Source: Xiao et al. 2022, arXiv 2211.10438, equation 4.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from cnai.compress.decoder.trial import Trial
from cnai.compress.decoder.units import Unit
from cnai.compress.folder.treatment import Form, Treatment

STRENGTH = 0.8
_NORMS = {"qkv": "attention_norm", "gate_up": "ffn_norm"}
_SMALLEST = 1e-5


def smoothing(trial: Trial, units: tuple[Unit, ...]) -> dict[str, NDArray[np.float32]]:
    """Return for each unit behind a norm, by its name, what its columns are multiplied by."""
    reach = _reach(trial, units)
    factors = {}
    for unit in units:
        if unit.kind not in _NORMS:
            continue
        weights = torch.cat([trial.exact(name) for name in unit.names]).abs().amax(dim=0)
        inputs = reach[unit.name].clamp(min=_SMALLEST)
        factor = inputs**STRENGTH / weights.clamp(min=_SMALLEST) ** (1 - STRENGTH)
        factors[unit.name] = (factor / factor.log().mean().exp()).numpy()
    return factors


def smoothed(
    unit: Unit, chosen: dict[str, Treatment], factor: NDArray[np.float32] | None
) -> dict[str, Treatment]:
    """Return the treatments of a unit with its factor, and that of the norm before it."""
    if factor is None:
        return chosen
    norm = f"layers.{unit.layer}.{_NORMS[unit.kind]}.weight"
    weights = {
        name: Treatment(form=one.form, group=one.group, reason=one.reason, factor=factor)
        for name, one in chosen.items()
    }
    # The norm keeps its number format; a bfloat16 one rounds the quotient, which the gate sees.
    return weights | {
        norm: Treatment(form=Form.KEPT, factor=np.float32(1) / factor, reason="is a norm")
    }


def _reach(trial: Trial, units: tuple[Unit, ...]) -> dict[str, torch.Tensor]:
    """Return the largest size of each input of the units, over the calibration tokens."""
    found: dict[str, torch.Tensor] = {}

    def look(name: str, x: torch.Tensor) -> None:
        found[name] = x.abs().flatten(0, -2).amax(dim=0)

    handles = [
        trial.decoder.get_submodule(
            unit.names[0].removesuffix(".weight")
        ).register_forward_pre_hook(lambda _module, inputs, name=unit.name: look(name, inputs[0]))
        for unit in units
        if unit.kind in _NORMS
    ]
    try:
        trial.logits()
    finally:
        for handle in handles:
            handle.remove()
    return found
