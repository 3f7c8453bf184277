"""From a shape and a place to this rank's part of the model, with its weights.

The part is built without memory (meta device), its matrices are split over the model axis and, if
asked, sharded over the data axis, and only then does it get storage and values. Each value is a
slice of the full initial tensor, which depends on its name and the seed alone, so that all layouts
start from the same model without a message.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.recompute import Recompute
from cnai.core.schedules import schedule_named
from cnai.core.shape import DecoderShape
from cnai.core.spec.sections import Train
from cnai.models import Decoder, SlicedWeights, Weights, add_adapters
from cnai.train.compiling import compile_layers
from cnai.train.context import exchange_positions
from cnai.train.experts import balance_experts, sparse_parts, spread_experts
from cnai.train.float8 import multiply_in_float8
from cnai.train.ranks import Ranks
from cnai.train.recompute import recompute_layers
from cnai.train.shards import held_index
from cnai.train.split import split_over_model_axis


def build_decoder(
    shape: DecoderShape, plan: ParallelPlan, ranks: Ranks, weights: Weights, settings: Train
) -> tuple[Decoder, ...]:
    """Return this rank's parts of the decoder, one a stage, split, sharded and filled.

    Args:
        weights: Gives the full initial tensor of a parameter by its name in the whole model; from
            weights that can be sliced, only what this rank holds is read.
    """
    parts = lay_out(shape, plan, ranks, settings)
    for part in parts:
        part.to_empty(device=ranks.device)
    _tie(parts)
    for part in parts:
        _fill(part, weights)
    return parts


def lay_out(
    shape: DecoderShape, plan: ParallelPlan, ranks: Ranks, settings: Train
) -> tuple[Decoder, ...]:
    """Return this rank's parts of the decoder, split and sharded, without memory (meta device)."""
    stages = plan.stages_of(ranks.place.pipeline)
    with torch.device("meta"):
        parts = tuple(
            Decoder(shape, first_layer=stage.first_layer, end_layer=stage.end_layer)
            for stage in stages
        )
    adapters = settings.lora.adapters()
    for part in parts:
        if adapters is not None:
            add_adapters(part, adapters)
        split_over_model_axis(part, plan.layout, ranks.mesh["model"])
        exchange_positions(part, ranks)
        spread_experts(part, ranks)
        balance_experts(part, ranks, settings.balance_loss / plan.microbatches)
    if settings.float8:
        multiply_in_float8(parts, plan.layout, ranks.device)
    _tie(parts)
    if settings.compile:
        compile_layers(parts, plan.layout)
    recompute_layers(parts, Recompute(settings.recompute))
    if plan.sharding is not Sharding.NONE:
        shard_over_data_axis(parts, plan, ranks, precision=settings.precision)
    return parts


def shard_over_data_axis(
    parts: Sequence[Decoder], plan: ParallelPlan, ranks: Ranks, *, precision: str
) -> None:
    """Shard every parameter over the data axis (FSDP2), a group a layer and one for the rest.

    Of two data axes, hybrid sharding replicates over the first and shards over the second. In
    bfloat16 the layers are gathered and computed in it, and gradients are summed in float32.
    Experts that are spread over ranks are a group of their own, sharded over those that hold the
    same ones. An embedding that two stages of this rank share stays whole: torch shards a parameter
    for one module only. Source: Zhao et al. 2023, arXiv 2304.11277.
    """
    shared = set(parts[0].embedding.parameters()) if _shares_embedding(parts) else set()
    for part in parts:
        spread = _shard_experts(part, plan, ranks, precision=precision)
        layers = list(part.layers.values())
        shard_part(part, layers, plan, ranks, precision=precision, whole=shared | spread)


def shard_part(
    part: nn.Module,
    layers: Sequence[nn.Module],
    plan: ParallelPlan,
    ranks: Ranks,
    *,
    precision: str,
    whole: set[nn.Parameter] | None = None,
) -> None:
    """Shard one part: each of its layers, and the rest together.

    Args:
        whole: Parameters that are not sharded.
    """
    mesh = ranks.mesh[ranks.data_axes]
    policy, give_up = _policy(precision), _gives_up(plan)
    for layer in layers:
        fully_shard(
            layer,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=give_up,
            ignored_params=whole,
        )
    fully_shard(
        part, mesh=mesh, mp_policy=policy, reshard_after_forward=give_up, ignored_params=whole
    )


def _policy(precision: str) -> MixedPrecisionPolicy:
    """Return in which formats parameters are gathered and gradients summed."""
    if precision == "bfloat16":
        return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return MixedPrecisionPolicy()


def _gives_up(plan: ParallelPlan) -> bool | None:
    """Tell whether a layer's gathered parameters are given up after forward; None = torch's way.

    A schedule that splits the backward pass looks for the weights before it runs: it misses those
    that were given up after forward, and their gradients would stay zero.
    """
    return False if _splits_backward(plan) else None


def _shard_experts(
    part: Decoder, plan: ParallelPlan, ranks: Ranks, *, precision: str
) -> set[nn.Parameter]:
    """Shard spread experts over the ranks that hold the same; return those that stay as they are.

    They are cut along the model's width, which the model axis leaves alone. Their gradients hold
    the rows of several ranks, so torch is told by how many copies of the model to divide.
    """
    if ranks.experts is None:
        return set()
    layers = [ffn.experts for _, ffn in sparse_parts(part)]
    if plan.layout.expert_shards(plan.sharding, part.shape.width) == 1:
        return {one for experts in layers for one in experts.parameters()}
    for experts in layers:
        down = experts.down_proj
        sharded = fully_shard(
            experts,
            mesh=ranks.experts["expert_copy"],
            mp_policy=_policy(precision),
            reshard_after_forward=_gives_up(plan),
            shard_placement_fn=lambda one, down=down: Shard(1 if one is down else 2),
        )
        sharded.set_gradient_divide_factor(plan.layout.copies)
        # Dividing inside the collective is something that gloo cannot do.
        sharded.set_force_sum_reduction_for_comms(enable=True)
    return set()


def _splits_backward(plan: ParallelPlan) -> bool:
    return plan.layout.pipeline > 1 and schedule_named(plan.schedule).splits_backward


def _shares_embedding(parts: Sequence[Decoder]) -> bool:
    """Tell whether the first and the last stage are two parts of this rank and tied."""
    ends = parts[0].is_first and parts[-1].is_last
    return len(parts) > 1 and ends and parts[0].shape.tied_head


def _tie(parts: Sequence[Decoder]) -> None:
    """Let head and embedding share one parameter again after both were rebuilt."""
    if _shares_embedding(parts):
        parts[-1].embedding.weight = parts[0].embedding.weight
    for part in parts:
        part.tie_head()


@torch.no_grad()
def _fill(module: nn.Module, weights: Weights) -> None:
    """Give every parameter its slice of the full tensor of its name; nothing is sent."""
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, DTensor):
            parameter.copy_(weights(name))
            continue
        index = held_index(parameter)
        if isinstance(weights, SlicedWeights):
            parameter.to_local().copy_(weights.part(name, index))
        else:
            parameter.to_local().copy_(weights(name)[index])
