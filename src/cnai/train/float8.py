"""Matrix products of the layers in 8-bit floats, through torchao.

Inputs, weights and gradients are scaled to the range of the format by their largest number, tensor
by tensor, just before a product (dynamic scaling); weights, sums and the optimizer stay as they
are. Source: Micikevicius et al. 2022, arXiv 2209.05433. A CPU has no such products: there torchao
rounds in the same way and multiplies in the wider format, which shows what the rounding does to a
curve and is slow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import nn

from cnai.core.errors import PlanError
from cnai.core.layout import Layout
from cnai.models import Decoder

_FEWEST = (8, 9)
_MULTIPLE = 16


def multiply_in_float8(parts: Iterable[Decoder], layout: Layout, device: torch.device) -> None:
    """Convert the matrices of the layers that are not split over the model axis.

    Embedding, head and the routers of experts keep their format, and so do matrices with a side
    that the hardware's products cannot take (a multiple of 16 is needed).

    Raises:
        PlanError: The device has no products in 8-bit floats.
    """
    _check(device)
    # Its own kernels are for other jobs, and each one that does not load prints a line.
    os.environ.setdefault("TORCHAO_SKIP_LOADING_SO_FILES", "1")
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: PLC0415

    config = Float8LinearConfig(emulate=device.type != "cuda")
    for part in parts:
        for index, layer in part.layers.items():
            if not layout.is_split(int(index)):
                convert_to_float8_training(layer, module_filter_fn=_fits, config=config)


def _fits(module: nn.Module, name: str) -> bool:
    if not isinstance(module, nn.Linear) or name.endswith("router"):
        return False
    return module.in_features % _MULTIPLE == 0 and module.out_features % _MULTIPLE == 0


def _check(device: torch.device) -> None:
    if device.type != "cuda":
        return
    found = torch.cuda.get_device_capability(device)
    if found < _FEWEST:
        raise PlanError(
            f"{torch.cuda.get_device_name(device)} has no matrix products in 8-bit floats",
            where="train.float8",
            hint="remove `train.float8`, or use Ada, Hopper or newer GPUs",
        )
