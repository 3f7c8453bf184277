"""The vector of all ranks on the device, for loops whose parallelism is not ours."""

from __future__ import annotations

from math import prod

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from cnai.train.probe_columns import Places, gathered
from cnai.train.shards import local_of


class Spread:
    """Puts squares of local tensors into the vector of all, on the device."""

    def __init__(self, places: Places, parameters: list[nn.Parameter]) -> None:
        self.device = parameters[0].device if parameters else torch.device("cpu")
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        self._places = places
        self._kind = kind
        ones = [1.0] * len(parameters)
        part = torch.tensor(places.part("gradient", ones), dtype=kind)
        self._index = torch.tensor(places.index("gradient"), device=self.device)
        self._share = part[self._index.cpu()].to(self.device)

    def begun(self, squares: Tensor) -> Tensor:
        """Return a new vector with the gradients in it."""
        message = torch.zeros(self._places.columns.width, dtype=self._kind, device=self.device)
        self.add(message, "gradient", squares)
        return message

    def add(self, message: Tensor, group: str, squares: Tensor) -> None:
        """Put the squares of all local parameters in."""
        start = self._places.columns.place(group).start
        message[start + self._index] = squares.to(message) * self._share

    def put(self, message: Tensor, group: str, values: list[float]) -> None:
        """Put values in that are as wide as their group."""
        message[self._places.columns.place(group)] = torch.tensor(values).to(message)


def is_distributed() -> bool:
    """Tell whether there are other ranks to sum with."""
    return dist.is_available() and dist.is_initialized()


def local_gradient(parameter: nn.Parameter) -> Tensor:
    """Return what this rank holds of a gradient; zeros where the parameter took no part."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(local_of(parameter.detach()))
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        gradient = gradient.redistribute(placements=parameter.placements)
    return local_of(gradient)


def copies_of(parameters: list[tuple[str, nn.Parameter]]) -> dict[str, float]:
    """Return how many ranks hold the same numbers: those that know the name, over its shards."""
    said = gathered({"": [name for name, _ in parameters]})
    return {
        name: sum(name in one[""] for one in said) / _shards(parameter)
        for name, parameter in parameters
    }


def _shards(parameter: nn.Parameter) -> int:
    if not isinstance(parameter, DTensor):
        return 1
    sizes = enumerate(parameter.placements)
    return prod(parameter.device_mesh.size(axis) for axis, one in sizes if not one.is_replicate())
