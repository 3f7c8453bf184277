"""Low-rank adapters in a decoder whose own weights are frozen.

Source: Hu et al. 2021, arXiv 2106.09685: W x + alpha / rank B A x with A drawn from a normal
distribution and B zero, so that training starts from the model as it is.

The matrix itself becomes `NAME.base`, the adapters are `NAME.a` and `NAME.b`; all three are plain
linear modules, so that whatever splits or shards linears can do it with them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from cnai.core.adapters import Adapters
from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.initialise import SlicedWeights, Weights, parameter_sizes

_BASE, _A, _B = ".base.", ".a.weight", ".b.weight"


class LoraLinear(nn.Module):
    """A frozen linear with a trained low-rank part beside it."""

    def __init__(self, base: nn.Linear, adapters: Adapters) -> None:
        super().__init__()
        self.base = base
        self.scale = adapters.scale
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.a = nn.Linear(base.in_features, adapters.rank, bias=False, **kind)
        self.b = nn.Linear(adapters.rank, base.out_features, bias=False, **kind)

    def forward(self, x: Tensor) -> Tensor:
        """Return the frozen product plus the scaled low-rank one."""
        out: Tensor = self.base(x) + self.scale * self.b(self.a(x))
        return out


def add_adapters(part: Decoder, adapters: Adapters) -> None:
    """Freeze a decoder, or a part of one, and put trained adapters beside its target matrices."""
    part.requires_grad_(requires_grad=False)
    for layer in part.layers.values():
        for path in adapters.paths:
            parent, name = path.split(".")
            owner = layer.get_submodule(parent)
            base = cast("nn.Linear", owner.get_submodule(name))
            setattr(owner, name, LoraLinear(base, adapters))


def adapter_sizes(shape: DecoderShape, adapters: Adapters) -> dict[str, tuple[int, ...]]:
    """Return the size of every trained parameter by its name."""
    with torch.device("meta"):
        decoder = Decoder(shape)
        add_adapters(decoder, adapters)
    return {
        name: tuple(value.shape)
        for name, value in decoder.named_parameters()
        if value.requires_grad
    }


class AdaptedWeights:
    """First values of an adapted decoder: the frozen model's, and the adapters' own.

    A is normal with deviation 1 / sqrt(in) and depends on the seed and its name alone; B is zero.
    """

    def __init__(self, base: Weights, shape: DecoderShape, adapters: Adapters, seed: int) -> None:
        self._base = base
        self._sizes = adapter_sizes(shape, adapters)
        self._seed = seed

    def __call__(self, name: str) -> Tensor:
        """Return a whole tensor."""
        size = self._sizes.get(name)
        if size is None:
            return self._base(_frozen_name(name))
        if name.endswith(_B):
            return torch.zeros(size)
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        return torch.randn(size, generator=generator) / math.sqrt(size[1])

    def part(self, name: str, index: tuple[slice, ...]) -> Tensor:
        """Return a slice of a tensor; of the frozen model only this is read where it can be."""
        if name not in self._sizes and isinstance(self._base, SlicedWeights):
            return self._base.part(_frozen_name(name), index)
        return self(name)[index]


def _frozen_name(name: str) -> str:
    """Return the name that a frozen parameter has in the model without adapters."""
    return name.replace(_BASE, ".")


def merged(
    base: Weights, trained: Mapping[str, Tensor], shape: DecoderShape, adapters: Adapters
) -> dict[str, Tensor]:
    """Return the whole model with the adapters added to the matrices, W + alpha / rank B A.

    Args:
        base: The frozen model.
        trained: The adapters by name, on the CPU.
        shape: The model.
        adapters: How they were made.
    """
    state = {}
    for name in parameter_sizes(shape):
        weight = base(name)
        stem = name.removesuffix(".weight")
        if stem + _A in trained:
            added = trained[stem + _B].double() @ trained[stem + _A].double()
            weight = (weight.double() + adapters.scale * added).float()
        state[name] = weight
    return state
