"""Mixtures of experts over ranks.

Spread experts are shared out over neighbours among the ranks that hold copies of the model (expert
parallelism): a rank sends the rows of its tokens to the ranks of their experts and gets them back,
so that no token is dropped and every rank keeps the positions that it had. Inside a model axis the
matrices of each expert are split as those of a dense layer: gate and up by output, down by input,
with one sum over the group at the end. Sources: Lepikhin et al. 2020 (GShard), arXiv 2006.16668,
section 3; Shoeybi et al. 2019, arXiv 1909.08053, section 3.

Shape suffixes as in `cnai.models.experts`, and R ranks that share the experts out, L
experts of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement

from cnai.models import Decoder
from cnai.models.decoder import Layer
from cnai.models.experts import Experts, Product, SparseFeedForward
from cnai.train.ranks import Ranks

_INNER_AXIS = {"gate_proj": 1, "up_proj": 1, "down_proj": 2}


def sparse_parts(part: Decoder) -> Iterator[tuple[int, SparseFeedForward]]:
    """Yield the mixtures of a part with the index of their layer."""
    for index, layer in part.layers.items():
        ffn = cast("Layer", layer).ffn
        if isinstance(ffn, SparseFeedForward):
            yield int(index), ffn


def balance_experts(part: Decoder, ranks: Ranks, weight: float) -> None:
    """Let the routers of a part be trained to use their experts evenly.

    Args:
        weight: Weight of the loss of one micro-batch.
    """
    for _, sparse in sparse_parts(part):
        sparse.balance_weight = weight
        if ranks.context is not None:
            sparse.total = _Total(ranks.context)


def spread_experts(part: Decoder, ranks: Ranks) -> None:
    """Share out the experts of a part, still without memory, and split their matrices."""
    layout = ranks.layout
    for index, sparse in sparse_parts(part):
        split = layout.is_split(index)
        if ranks.experts is not None:
            _distribute(sparse.experts, ranks.experts["expert", "model"], [Shard(0)], split=split)
            sparse.experts.place = RowsToExperts(ranks.experts.get_group("expert"))
        elif split:
            _distribute(sparse.experts, ranks.mesh["model"], [], split=True)
        if split:
            _sum_over_model_axis(sparse, ranks.mesh["model"], sequence=layout.split_sequence)


def _distribute(experts: Experts, mesh: DeviceMesh, over: list[Placement], *, split: bool) -> None:
    for name, axis in _INNER_AXIS.items():
        placements = [*over, Shard(axis) if split else Replicate()]
        whole = cast("Tensor", getattr(experts, name))
        held = distribute_tensor(whole.detach(), mesh, placements, src_data_rank=None)
        setattr(experts, name, nn.Parameter(held, requires_grad=whole.requires_grad))
    experts.local = _local


def _local(stack: Tensor) -> Tensor:
    return stack.to_local() if isinstance(stack, DTensor) else stack


def _sum_over_model_axis(sparse: SparseFeedForward, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Sum over the group what its parts of the experts make, and in backward what they ask for.

    The router is whole on every rank and sees whole gradients. With `sequence` each rank keeps its
    positions of the sum.
    """
    after = Shard(1) if sequence else Replicate()

    def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x_ND, weight_NC, chosen_NC = inputs
        return (*(_asked_by_all(one, mesh) for one in (x_ND, weight_NC)), chosen_NC)

    def leave(_: nn.Module, _inputs: object, out_BTD: Tensor) -> Tensor:
        part = DTensor.from_local(out_BTD, mesh, [Partial()], run_check=False)
        return part.redistribute(placements=[after]).to_local()

    sparse.experts.register_forward_pre_hook(enter)
    sparse.register_forward_hook(leave)


def _asked_by_all(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a tensor that is the same on all ranks; its gradients are summed over them."""
    same = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return same.to_local(grad_placements=[Partial()])


class RowsToExperts:
    """Takes rows to the ranks of their experts and brings back what those make."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._size = group.size()

    def __call__(self, product: Product, x_MD: Tensor, rows_E: Tensor) -> Tensor:
        """Return what the experts make of rows that are sorted by expert, in the same order."""
        sent_RL = rows_E.view(self._size, -1)
        got_RL = torch.empty_like(sent_RL)
        dist.all_to_all_single(got_RL, sent_RL, group=self._group)
        there, here = sent_RL.sum(dim=1).tolist(), got_RL.sum(dim=1).tolist()
        come_MD = all_to_all_single_autograd(x_MD, here, there, self._group)
        expert_M = torch.arange(got_RL.numel(), device=got_RL.device) % got_RL.shape[1]
        order_M = expert_M.repeat_interleave(got_RL.flatten()).argsort(stable=True)
        made_MD = product(come_MD[order_M], got_RL.sum(dim=0))
        back_MD = torch.empty_like(made_MD).index_copy(0, order_M, made_MD)
        return all_to_all_single_autograd(back_MD, there, here, self._group)


class _Total:
    """Adds up numbers over a group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def __call__(self, counts: Tensor) -> Tensor:
        dist.all_reduce(counts, group=self._group)
        return counts
