"""INT4 weights rounded one input after the other, each error made good by the inputs to come.

What is kept small is the change of a layer's outputs on calibration text, not that of its weights.
Source: Frantar, Ashkboos, Hoefler, Alistarh 2022, arXiv 2210.17323, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cnai.compress.channels import QuantizedArray
from cnai.compress.decoder.units import Unit, units_of
from cnai.compress.folder.rounding import LARGEST4, group_scales
from cnai.compress.folder.treatment import Form, Treatment, group_for
from cnai.models.decoder import Decoder, rotary_table

_DAMPING = 0.01
_ROWS_AT_ONCE = 8
_ROUNDS_OF_DAMPING = 6


def round_columns(
    weight: Tensor, products: Tensor, group: int, *, short_scales: bool
) -> QuantizedArray:
    """Round a matrix to INT4.

    Args:
        weight: float32 (out, in).
        products: Sum of the outer products of the layer's inputs, (in, in).
        group: Inputs that share a scale.
    """
    left, inverse = weight.clone(), _inverse_root(products)
    dead = products.diagonal() == 0
    left[:, dead] = 0
    rows, columns = left.shape
    values = torch.zeros(rows, columns, dtype=torch.int8)
    scales = torch.zeros(rows, columns // group)
    for start in range(0, columns, group):
        end = start + group
        block, errors = left[:, start:end].clone(), torch.zeros(rows, group)
        scale = torch.from_numpy(
            group_scales(block.numpy()[:, None, :], short_scales=short_scales)[:, 0]
        )
        scales[:, start // group] = scale[:, 0]
        local = inverse[start:end, start:end]
        for column in range(group):
            rounded = (block[:, column] / scale[:, 0]).round().clamp(-LARGEST4, LARGEST4)
            values[:, start + column] = rounded.to(torch.int8)
            error = (block[:, column] - rounded * scale[:, 0]) / local[column, column]
            block[:, column:] -= torch.outer(error, local[column, column:])
            errors[:, column] = error
        left[:, end:] -= errors @ inverse[start:end, end:]
    return QuantizedArray(values=values.numpy(), scale=scales.numpy())


def _inverse_root(products: Tensor) -> Tensor:
    """Return the upper Cholesky factor of the inverse; damped until it exists."""
    exact = products.double()
    exact.diagonal().add_((exact.diagonal() == 0).double())
    mean = float(exact.diagonal().mean())
    for power in range(_ROUNDS_OF_DAMPING):
        damped = exact + torch.eye(len(exact), dtype=torch.float64) * mean * _DAMPING * 10**power
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            root: Tensor = torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
            return root.float()
    return torch.eye(len(exact))


def calibrated(
    decoder: Decoder,
    rows: NDArray[np.int64],
    *,
    short_scales: bool,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Treatment]:
    """Round the layers whose inputs a group divides; the decoder holds the new weights after.

    A layer is calibrated on what the layers before it give once they are rounded. Experts, of which
    each sees other tokens, are left out.

    Args:
        rows: Calibration tokens (N, T + 1).
    """
    chosen: dict[str, Treatment] = {}
    shape = decoder.shape
    with torch.no_grad():
        parts = [
            decoder.embedding(torch.from_numpy(rows[at : at + _ROWS_AT_ONCE, :-1]).long())
            for at in range(0, len(rows), _ROWS_AT_ONCE)
        ]
        rotary = rotary_table(shape, rows.shape[1] - 1, torch.device("cpu"))
        for done, (index, layer) in enumerate(decoder.layers.items()):
            progress(done, shape.layers)
            mine = [
                unit
                for unit in units_of(shape)
                if unit.layer == int(index) and unit.kind != "experts"
            ]
            chosen |= _round_layer(decoder, layer, mine, parts, rotary, short_scales=short_scales)
            parts = [layer(x, rotary) for x in parts]
    progress(shape.layers, shape.layers)
    return chosen


def _round_layer(
    decoder: Decoder,
    layer: nn.Module,
    units: list[Unit],
    parts: list[Tensor],
    rotary: Tensor,
    *,
    short_scales: bool,
) -> dict[str, Treatment]:
    chosen = {}
    for unit, products in zip(units, _products(decoder, layer, units, parts, rotary), strict=True):
        group = group_for(len(products))
        if group is None:
            continue
        for name in unit.names:
            weight = decoder.get_parameter(name)
            new = round_columns(weight.detach(), products, group, short_scales=short_scales)
            chosen[name] = Treatment(form=Form.W4A16, group=group, ready=new)
            values = torch.from_numpy(new.values).float()
            weight.copy_(values * torch.from_numpy(new.scale).repeat_interleave(group, dim=1))
    return chosen


def _products(
    decoder: Decoder, layer: nn.Module, units: list[Unit], parts: list[Tensor], rotary: Tensor
) -> list[Tensor]:
    """Return for each unit the sum of the outer products of its inputs."""
    sums: list[Tensor | None] = [None] * len(units)

    def gather(at: int, x: Tensor) -> None:
        flat = x.reshape(-1, x.shape[-1])
        product = flat.T @ flat
        known = sums[at]
        sums[at] = product if known is None else known + product

    handles = [
        decoder.get_submodule(unit.names[0].removesuffix(".weight")).register_forward_pre_hook(
            lambda _module, inputs, at=at: gather(at, inputs[0])
        )
        for at, unit in enumerate(units)
    ]
    try:
        for x in parts:
            layer(x, rotary)
    finally:
        for handle in handles:
            handle.remove()
    return [one for one in sums if one is not None]
