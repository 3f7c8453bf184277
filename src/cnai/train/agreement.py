"""What all copies must have in common: running statistics, and gradients of what is not split."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cnai.core.errors import SpecError
from cnai.train.ranks import Ranks
from cnai.train.shards import Shard, squared_norm

_LARGEST_DIFFERENCE = 1e-2


def kept_buffers(parts: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the buffers that belong into a checkpoint, by name."""
    return {
        f"{path}.{name}" if path else name: value
        for part in parts
        for path, module in part.named_modules()
        for name, value in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def share_buffers(buffers: dict[str, Tensor], ranks: Ranks) -> None:
    """Give all data ranks the same buffers: the mean of numbers, the first rank's counters.

    Each rank's running statistics are averages over its own rows; as such an average is linear, the
    mean over ranks is the average over all rows, however often it is taken.
    """
    numbers = [one for one in buffers.values() if one.is_floating_point()]
    for kind in dict.fromkeys(one.dtype for one in numbers):
        ranks.average([one for one in numbers if one.dtype == kind])
    if ranks.layout.data == 1:
        return
    for counter in (one for one in buffers.values() if not one.is_floating_point()):
        for axis in ranks.data_axes:
            dist.broadcast(counter, group=ranks.mesh.get_group(axis), group_src=0)


def check_whole_gradients(shards: Sequence[Shard], ranks: Ranks) -> None:
    """Look whether the ranks of a group have the same gradient of what each of them holds whole.

    Where one rank uses a parameter on its own columns only, it has a part of the gradient, and the
    copies would drift apart in silence.

    Raises:
        SpecError: They differ.
    """
    whole = [shard for shard in shards if not shard.is_split]
    if ranks.layout.model == 1 or not whole:
        return
    squares = squared_norm([shard.local_gradient() for shard in whole])
    lowest = torch.tensor(squares, dtype=torch.float64, device=ranks.device).sqrt()
    both = torch.stack((lowest, -lowest))
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=ranks.mesh.get_group("model"))
    high, low = both[0], -both[1]
    slack = _LARGEST_DIFFERENCE * high + 1e-6 * high.max()
    for shard, differs in zip(whole, (high - low > slack).tolist(), strict=True):
        if differs:
            raise SpecError(
                f"the ranks of a model-parallel group have different gradients of `{shard.name}`, "
                "which each of them holds whole",
                where="model.module",
                hint=f"if each rank uses it on its own columns, add `{_owner(shard.name)}: summed` "
                "to the sharding table; else look at what is split around it",
            )


def _owner(name: str) -> str:
    return name.rpartition(".")[0] or name
