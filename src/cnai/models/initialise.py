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


class InitialWeights:
    """Whole float32 tensors on the CPU by name, or parts of them.

    Matrices are normal with deviation sqrt(2 / 5D), which is 0.02 at width 1000; the matrices of a
    layer that add to the residual stream are scaled by 1 / sqrt(2 x layers), so that the stream's
    variance does not grow with depth; norms are 1 and biases 0. Of stacked experts each is drawn by
    itself, so that a rank makes those that it holds.

    Source: Nguyen and Salazar 2019, arXiv 1910.05895, section 2.2 (deviation); Radford et al. 2019
    (GPT-2), section 2.3, and Shoeybi et al. 2019, arXiv 1909.08053, section 4.2 (residual scale).
    """

    def __init__(self, shape: DecoderShape, seed: int) -> None:
        self._tied = shape.tied_head
        self._seed = seed
        self._sizes = parameter_sizes(shape)
        self._deviation = math.sqrt(2 / (5 * shape.width))
        self._residual_scale = 1 / math.sqrt(2 * shape.layers)

    def __call__(self, name: str) -> Tensor:
        """Return a whole tensor.

        Raises:
            KeyError: The decoder has no parameter of this name.
        """
        name = self._held(name)
        size = self._sizes[name]
        if len(size) == 1:
            return torch.zeros(size) if name.endswith(".bias") else torch.ones(size)
        if len(size) == 2:
            return self._drawn(name, name, size)
        return torch.stack([self._expert(name, expert) for expert in range(size[0])])

    def part(self, name: str, index: tuple[slice, ...]) -> Tensor:
        """Return the numbers of a tensor at a slice of each axis; of a stack only these experts."""
        name = self._held(name)
        size = self._sizes[name]
        if len(size) < 3:
            return self(name)[index]
        chosen = range(size[0])[index[0]]
        if not chosen:
            return torch.empty(0, *size[1:])[:, *index[1:]]
        return torch.stack([self._expert(name, expert)[index[1:]] for expert in chosen])

    def _held(self, name: str) -> str:
        return "embedding.weight" if self._tied and name == "head.weight" else name

    def _expert(self, name: str, expert: int) -> Tensor:
        return self._drawn(name, f"{name}.{expert}", self._sizes[name][1:])

    def _drawn(self, name: str, key: str, size: tuple[int, ...]) -> Tensor:
        scale = self._residual_scale if name.endswith(_RESIDUAL_OUTPUTS) else 1.0
        generator = torch.Generator().manual_seed(_seed_of(self._seed, key))
        return torch.randn(size, generator=generator).mul_(self._deviation * scale)


def initial_weights(shape: DecoderShape, seed: int) -> InitialWeights:
    """Return the first values of a decoder's parameters by name."""
    return InitialWeights(shape, seed)


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
