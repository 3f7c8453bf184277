"""Initial weights that depend on the seed and the parameter's name, and on nothing else.

Every rank of every layout can make the tensors it holds by itself and gets the values that a lone
process would: nothing is sent, and no order of creation matters. The numbers are drawn on the CPU;
machines of one processor architecture agree bit for bit.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder

Weights = Callable[[str], Tensor]
"""From a parameter's name in the whole model to its whole tensor."""


@runtime_checkable
class SlicedWeights(Protocol):
    """Weights that can read a part of a tensor without the rest."""

    def __call__(self, name: str) -> Tensor:
        """Return a whole tensor."""
        ...

    def part(self, name: str, index: tuple[slice, ...]) -> Tensor:
        """Return the numbers of a tensor at a slice of each axis."""
        ...


_RESIDUAL_OUTPUTS = ("attention.o_proj.weight", "ffn.down_proj.weight", "ffn.experts.down_proj")


def initial_weights(shape: DecoderShape, seed: int) -> Weights:
    """Return a function from a parameter's name to its whole float32 tensor on the CPU.

    Matrices are normal with deviation sqrt(2 / 5D), which is 0.02 at width 1000; the two matrices
    of a layer that add to the residual stream are scaled by 1 / sqrt(2 x layers), so that the
    stream's variance does not grow with depth; norms are 1 and biases 0. The function raises
    KeyError for a name that the decoder does not have.

    Source: Nguyen and Salazar 2019, arXiv 1910.05895, section 2.2 (deviation); Radford et al. 2019
    (GPT-2), section 2.3, and Shoeybi et al. 2019, arXiv 1909.08053, section 4.2 (residual scale).
    """
    sizes = parameter_sizes(shape)
    deviation = math.sqrt(2 / (5 * shape.width))

    def weights(name: str) -> Tensor:
        if shape.tied_head and name == "head.weight":
            name = "embedding.weight"
        size = sizes[name]
        if len(size) == 1:
            return torch.zeros(size) if name.endswith(".bias") else torch.ones(size)
        scale = 1 / math.sqrt(2 * shape.layers) if name.endswith(_RESIDUAL_OUTPUTS) else 1.0
        generator = torch.Generator().manual_seed(_seed_of(seed, name))
        return torch.randn(size, generator=generator).mul_(deviation * scale)

    return weights


def parameter_sizes(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Return the size of every parameter by its name; a tied head has none of its own."""
    with torch.device("meta"):
        decoder = Decoder(shape)
    return {name: tuple(weight.shape) for name, weight in decoder.named_parameters()}


def fill(module: nn.Module, weights: Weights) -> None:
    """Set every parameter of a module that lies on one real device, in place."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(weights(name))


def _seed_of(seed: int, name: str) -> int:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
