"""The numbers that one rank really holds, behind whatever wraps them.

A parameter may be a plain tensor, one split over the model axis, or one sharded over the data axis.
Optimizers and norms work element by element, so they run on the local tensors directly; that needs
no collective, costs no dispatch through DTensor, and is the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from cnai.train.module_task import ModuleTask
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
        is_sharded: Whether it is sharded over the data axis; torch then sums its gradient.
        is_expert: Whether it belongs to experts that are spread over ranks; their tokens come to
            it, so its gradient is of several ranks' rows already.
        is_partial: Whether backward leaves only the part of the gradient that comes from this
            rank's heads, so that it must be summed over the model axis.
        is_split: Whether it is split over the model axis.
        layers: Path of the layers in the whole model; None = it has none.
    """

    name: str
    parameter: nn.Parameter
    local: nn.Parameter
    copies: int
    is_sharded: bool = False
    is_partial: bool = False
    is_expert: bool = False
    is_split: bool = False
    layers: str | None = "layers"

    @property
    def is_hidden(self) -> bool:
        """Whether it is a matrix inside a layer, between two hidden vectors."""
        inside = self.layers is not None and self.name.startswith(f"{self.layers}.")
        return inside and self.local.dim() == 2

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


def held_index(parameter: DTensor) -> tuple[slice, ...]:
    """Return the slice of each axis of the whole tensor that this rank holds."""
    size, offset = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(slice(first, first + n) for first, n in zip(offset, size, strict=True))


def shards_of(
    parts: Sequence[nn.Module], ranks: Ranks, task: ModuleTask | None = None
) -> list[Shard]:
    """List the trained parameters of this rank's parts, each once; frozen ones are left out.

    Args:
        task: What is known of a user's module; None = the parts are those of a decoder.
    """
    layers = task.layers if task else "layers"
    found: dict[str, nn.Parameter] = {}
    for part in parts:
        found |= dict(part.named_parameters())
    return [
        Shard(
            name,
            parameter,
            nn.Parameter(local_of(parameter.detach())),
            _copies(name, parameter, ranks),
            not _sharded_axes(parameter).isdisjoint((*ranks.data_axes, "expert_copy")),
            _is_partial(name, ranks) if task is None else name in task.summed,
            "expert" in _sharded_axes(parameter),
            "model" in _sharded_axes(parameter),
            layers,
        )
        for name, parameter in found.items()
        if parameter.requires_grad
    ]


def _copies(name: str, parameter: nn.Parameter, ranks: Ranks) -> int:
    sizes = ranks.axis_sizes
    sharded = _sharded_axes(parameter)
    whole = prod(size for axis, size in sizes.items() if axis not in sharded)
    if "expert" in sharded:
        whole //= ranks.layout.expert
    if "expert_copy" in sharded:
        whole //= ranks.layout.expert_copies
    tied_twice = ranks.tie is not None and name == "embedding.weight"
    return whole * (2 if tied_twice else 1)


def _sharded_axes(parameter: nn.Parameter) -> set[str]:
    """Return the axes over which it is sharded, evenly or strided."""
    if not isinstance(parameter, DTensor):
        return set()
    names = parameter.device_mesh.mesh_dim_names or ()
    placed = zip(names, parameter.placements, strict=True)
    return {axis for axis, placement in placed if not placement.is_replicate()}


def _is_partial(name: str, ranks: Ranks) -> bool:
    """Tell whether a parameter stands whole on every rank, but each uses it for its heads only."""
    if not name.endswith(_OVER_HEADS):
        return False
    return ranks.layout.is_split(int(name.split(".")[1]))


def squares_of(tensors: list[Tensor]) -> Tensor:
    """Return the sum of squares of each tensor, where they lie: nothing waits for a device."""
    if not tensors:
        return torch.zeros(0, dtype=torch.float64)
    return torch.stack(torch._foreach_norm(tensors)).double().square()


def squared_norm(tensors: list[Tensor]) -> list[float]:
    """Return the sum of squares of each tensor."""
    norms: list[float] = squares_of(tensors).tolist()
    return norms
