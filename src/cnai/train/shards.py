"""The numbers that one rank really holds, behind whatever wraps them.

A parameter may be a plain tensor, one split over the model axis, or one sharded over the data axis.
Optimizers and norms work element by element, so they run on the local tensors directly; that needs
no collective, costs no dispatch through DTensor, and is the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from cnai.train.ranks import Ranks

_OVER_HEADS = (".q_norm.weight", ".k_norm.weight")


@dataclass(frozen=True, slots=True)
class Shard:
    """One parameter as this rank holds it.

    Attributes:
        name: Name in the whole model.
        parameter: The parameter of the module.
        local: A leaf that shares the local storage, for the optimizer.
        copies: Ranks that hold these very numbers, this one included.
        is_partial: Whether backward leaves only the part of the gradient that comes from this
            rank's heads, so that it must be summed over the model axis.
    """

    name: str
    parameter: nn.Parameter
    local: nn.Parameter
    copies: int
    is_partial: bool = False

    @property
    def is_matrix(self) -> bool:
        """Whether weight decay applies (not to norms)."""
        return self.local.dim() > 1

    def local_gradient(self) -> Tensor:
        """Return this rank's gradient, sharing storage; zeros where the parameter took no part."""
        gradient = self.parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(self.parameter)
        elif isinstance(gradient, DTensor) and isinstance(self.parameter, DTensor):
            # An embedding's gradient arrives unsplit or unsummed; a no-op for the others.
            gradient = gradient.redistribute(placements=self.parameter.placements)
        self.parameter.grad = gradient
        return local_of(gradient)

    def wrap(self, local: Tensor) -> Tensor:
        """Present a local tensor of this shape the way the parameter is presented."""
        if not isinstance(self.parameter, DTensor):
            return local
        return DTensor.from_local(
            local,
            self.parameter.device_mesh,
            self.parameter.placements,
            run_check=False,
            shape=self.parameter.shape,
            stride=self.parameter.stride(),
        )


def local_of(tensor: Tensor) -> Tensor:
    """Return the local part of a tensor, sharing its storage."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def shards_of(module: nn.Module, ranks: Ranks) -> list[Shard]:
    """List the trained parameters of this rank's part, each once; frozen ones are left out."""
    return [
        Shard(
            name,
            parameter,
            nn.Parameter(local_of(parameter.detach())),
            _copies(name, parameter, ranks),
            _is_partial(name, ranks),
        )
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    ]


def _copies(name: str, parameter: nn.Parameter, ranks: Ranks) -> int:
    axes = {"data": ranks.layout.data, "model": ranks.layout.model}
    if isinstance(parameter, DTensor):
        names = parameter.device_mesh.mesh_dim_names or ()
        for axis, placement in zip(names, parameter.placements, strict=True):
            if not placement.is_replicate():  # plain or strided shard
                axes[axis] = 1
    tied_twice = ranks.tie is not None and name == "embedding.weight"
    return axes["data"] * axes["model"] * (2 if tied_twice else 1)


def _is_partial(name: str, ranks: Ranks) -> bool:
    """Tell whether a parameter stands whole on every rank, but each uses it for its heads only."""
    if not name.endswith(_OVER_HEADS):
        return False
    return ranks.layout.is_split(int(name.split(".")[1]))


def squared_norm(tensors: list[Tensor]) -> list[float]:
    """Return the sum of squares of each tensor."""
    return [float(norm) ** 2 for norm in torch._foreach_norm(tensors)] if tensors else []
