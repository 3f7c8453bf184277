"""A rank among its peers: the process group, the mesh and what they tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from cnai.core.layout import Layout, ParallelPlan, Place, Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One rank's view of all.

    Attributes:
        place: Coordinates of this rank.
        mesh: All ranks, with axes `pipeline`, `data` and `model`; hybrid sharding has `replicate`
            and `shard` in place of `data`. A context axis is a part of `data`: its members hold
            the same weights too.
        data_axes: The one or two axes of the mesh that hold copies of the model.
        device: Where this rank computes.
        tie: Group of the owners of the first and last stage at these data and model coordinates,
            which each hold a tied embedding; None where one rank owns both or nothing is tied.
        writers: All ranks, for the thread that writes checkpoints: a group of its own, so that its
            messages never mix with those of a step.
        context: The ranks that hold the other positions of the same sequences; None where a rank
            holds all.
        experts: All ranks, with the data and context axes cut into `expert_copy` and `expert`
            where experts are spread; None where each rank has all of them.
    """

    layout: Layout
    place: Place
    mesh: DeviceMesh
    device: torch.device
    data_axes: tuple[str, ...]
    tie: dist.ProcessGroup | None
    writers: dist.ProcessGroup
    context: dist.ProcessGroup | None = None
    experts: DeviceMesh | None = None

    @property
    def axis_sizes(self) -> dict[str, int]:
        """Ranks along the axes over which parameters may lie, by axis."""
        return {axis: self.mesh[axis].size() for axis in (*self.data_axes, "model")}

    def total(self, values: list[float]) -> list[float]:
        """Sum numbers over all ranks, in float64 so that their order does not show."""
        if self.layout.ranks == 1:
            return values
        vector = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(vector)
        return [float(value) for value in vector]

    def any_writer(self, said: bool) -> bool:
        """Tell whether any rank says so; for the thread that writes checkpoints."""
        votes = torch.tensor([int(said)])
        dist.all_reduce(votes, group=self.writers)
        return bool(votes.item())

    def wait_for_writers(self) -> None:
        """Wait for all ranks; for the thread that writes checkpoints."""
        dist.barrier(self.writers)

    def average(self, tensors: list[Tensor]) -> None:
        """Average tensors in place over all copies, as one message (two under hybrid)."""
        if self.layout.copies > 1 and tensors:
            for axis in self.data_axes:
                _all_reduce_flat(tensors, self.mesh.get_group(axis))
            torch._foreach_div_(tensors, self.layout.copies)

    def average_experts(self, tensors: list[Tensor]) -> None:
        """Average gradients of spread experts in place over all copies of the model.

        The tokens of the ranks that share the experts out have met there already.
        """
        if self.experts is not None and tensors:
            if self.layout.expert_copies > 1:
                _all_reduce_flat(tensors, self.experts.get_group("expert_copy"))
            torch._foreach_div_(tensors, self.layout.copies)

    def average_over_context(self, tensors: list[Tensor]) -> None:
        """Average tensors in place over the ranks that hold parts of the same sequences."""
        if self.context is not None and tensors:
            _all_reduce_flat(tensors, self.context)
            torch._foreach_div_(tensors, self.layout.context)

    def add_partial(self, tensors: list[Tensor]) -> None:
        """Add tensors in place over the ranks that split a layer."""
        if tensors and self.layout.model > 1:
            _all_reduce_flat(tensors, self.mesh.get_group("model"))

    def add_tied(self, tensors: list[Tensor]) -> None:
        """Add tensors in place over the stages that share the embedding."""
        if self.tie is not None:
            _all_reduce_flat(tensors, self.tie)


def _all_reduce_flat(tensors: list[Tensor], group: dist.ProcessGroup) -> None:
    """Sum tensors of one type over a group in one collective.

    One long message costs far less than many short ones, whose latency adds up.
    """
    if len(tensors) == 1 and tensors[0].is_contiguous():
        dist.all_reduce(tensors[0], group=group)
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat, group=group)
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(
        tensors, [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
    )


@contextmanager
def joined(
    plan: ParallelPlan,
    rank: int,
    *,
    store: tuple[str, int],
    attempt: int,
    timeout_seconds: float,
    tied: bool,
) -> Iterator[Ranks]:
    """Join the process group, and leave it together with the others.

    Args:
        store: Host and port of the attempt's store.
        attempt: Number of the attempt; its keys are apart from those of other attempts.
        timeout_seconds: Longest wait in a collective.
        tied: Whether the first and last stage share an embedding.
    """
    layout = plan.layout
    limit = timedelta(seconds=timeout_seconds)
    client = dist.TCPStore(*store, is_master=False, timeout=limit)
    device = torch.device("cuda", rank % torch.cuda.device_count()) if _has_cuda() else _CPU
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(f"attempt-{attempt}", client),
        rank=rank,
        world_size=layout.ranks,
        timeout=limit,
    )
    mesh, data_axes = mesh_of(plan, device.type)
    yield Ranks(
        layout=layout,
        place=layout.place(rank),
        mesh=mesh,
        device=device,
        data_axes=data_axes,
        tie=_tie_group(plan, rank) if tied and len(set(plan.ends)) > 1 else None,
        writers=_writers(limit),
        context=context_group(layout),
        experts=expert_mesh(layout, device.type),
    )
    # Without the barrier a rank that is done may tear down pairs that another still uses.
    dist.barrier()
    dist.destroy_process_group()


def mesh_of(plan: ParallelPlan, device_type: str) -> tuple[DeviceMesh, tuple[str, ...]]:
    """Return the mesh of all ranks of the process group, and those of its axes that hold copies."""
    layout = plan.layout
    data_axes = {"data": layout.copies}
    if plan.sharding is Sharding.HYBRID:
        data_axes = {"replicate": layout.copies // plan.shards, "shard": plan.shards}
    axes = {"pipeline": layout.pipeline, **data_axes, "model": layout.model}
    mesh = init_device_mesh(device_type, tuple(axes.values()), mesh_dim_names=tuple(axes))
    return mesh, tuple(data_axes)


def expert_mesh(layout: Layout, device_type: str) -> DeviceMesh | None:
    """Return the mesh in which experts are spread."""
    if layout.expert == 1:
        return None
    axes = {
        "pipeline": layout.pipeline,
        "expert_copy": layout.expert_copies,
        "expert": layout.expert,
        "model": layout.model,
    }
    return init_device_mesh(device_type, tuple(axes.values()), mesh_dim_names=tuple(axes))


def context_group(layout: Layout) -> dist.ProcessGroup | None:
    """Make the groups of the context axis, all of them on every rank, and return this rank's."""
    if layout.context == 1:
        return None
    span = layout.context * layout.model
    starts = (
        first + model for first in range(0, layout.ranks, span) for model in range(layout.model)
    )
    members = [list(range(start, start + span, layout.model)) for start in starts]
    mine, _ = dist.new_subgroups_by_enumeration(members)
    if not isinstance(mine, dist.ProcessGroup):
        raise TypeError("this rank is in no group of the context axis")
    return mine


def _writers(limit: timedelta) -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo", timeout=limit)
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError("this rank is not in the group of all ranks")
    return group


_CPU = torch.device("cpu")


def _has_cuda() -> bool:
    return torch.cuda.is_available()


def _tie_group(plan: ParallelPlan, rank: int) -> dist.ProcessGroup | None:
    """Make the group of every place inside a stage, in the same order on all ranks."""
    layout, mine = plan.layout, None
    ranks_of_a_place = layout.copies * layout.model
    for inside in range(ranks_of_a_place):
        ends = [end * ranks_of_a_place + inside for end in sorted(plan.ends)]
        group = dist.new_group(ends)
        if rank in ends and isinstance(group, dist.ProcessGroup):
            mine = group
    return mine
