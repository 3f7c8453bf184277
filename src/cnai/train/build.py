"""From a shape and a place to this rank's part of the model, with its weights.

The part is built without memory (meta device), its matrices are split over the model axis and, if
asked, sharded over the data axis, and only then does it get storage and values. Each value is a
slice of the full initial tensor, which depends on its name and the seed alone, so that all layouts
start from the same model without a message.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from cnai.core.adapters import Adapters
from cnai.core.layout import ParallelPlan, Sharding
from cnai.core.shape import DecoderShape
from cnai.models import Decoder, SlicedWeights, Weights, add_adapters
from cnai.models.lora import LoraLinear
from cnai.train.ranks import Ranks

_BY_OUTPUT = (
    "attention.q_proj", "attention.k_proj", "attention.v_proj", "ffn.gate_proj", "ffn.up_proj",
)  # fmt: skip
_BY_INPUT = ("attention.o_proj", "ffn.down_proj")


def build_decoder(
    shape: DecoderShape,
    plan: ParallelPlan,
    ranks: Ranks,
    weights: Weights,
    *,
    precision: str,
    adapters: Adapters | None = None,
) -> Decoder:
    """Return this rank's part of the decoder, split, sharded and filled.

    Args:
        weights: Gives the full initial tensor of a parameter by its name in the whole model; from
            weights that can be sliced, only what this rank holds is read.
        precision: `float32` or `bfloat16`, the type in which sharded parameters are gathered.
        adapters: What is trained beside the frozen weights; None = the weights themselves are.
    """
    stage = plan.stages[ranks.place.pipeline]
    with torch.device("meta"):
        part = Decoder(shape, first_layer=stage.first_layer, end_layer=stage.end_layer)
    if adapters is not None:
        add_adapters(part, adapters)
    split_over_model_axis(part, ranks)
    if plan.sharding is Sharding.FULL:
        shard_over_data_axis(part, ranks, precision=precision)
    part.to_empty(device=ranks.device)
    _tie(part)
    _fill(part, weights)
    return part


def split_over_model_axis(part: Decoder, ranks: Ranks) -> None:
    """Split the matrices of the layers from `split_layer` on (Megatron's column and row split).

    Queries, keys, values, gate and up are split by output, so that a rank holds whole heads and
    whole hidden units; the output and down projections by input, with one sum over the group.
    Source: Shoeybi et al. 2019, arXiv 1909.08053, section 3.
    """
    layout, mesh = ranks.layout, ranks.mesh["model"]
    if layout.model == 1:
        return
    for index, layer in part.layers.items():
        if layout.is_split(int(index)):
            parallelize_module(layer, mesh, _styles(layer))
    ends: dict[str, ParallelStyle] = {}
    if hasattr(part, "embedding") and layout.is_split(0):
        ends["embedding"] = RowwiseParallel(input_layouts=Replicate())
    head_layer = 0 if part.shape.tied_head else part.shape.layers - 1
    if part.is_last and layout.is_split(head_layer):
        ends["head"] = ColwiseParallel(output_layouts=Replicate())
    if ends:
        parallelize_module(part, mesh, ends)
    _tie(part)


def _styles(layer: nn.Module) -> dict[str, ParallelStyle]:
    """Say how each linear of a layer is split.

    Of a pair of adapters the one at the split side is split with its matrix, the other is whole on
    every rank: its input or its output is the sum over the group, so its gradient is too.
    """
    styles: dict[str, ParallelStyle] = {}
    for path in _BY_OUTPUT + _BY_INPUT:
        style, split = (ColwiseParallel, "b") if path in _BY_OUTPUT else (RowwiseParallel, "a")
        if isinstance(layer.get_submodule(path), LoraLinear):
            styles |= {f"{path}.base": style(), f"{path}.{split}": style()}
        else:
            styles[path] = style()
    return styles


def shard_over_data_axis(part: Decoder, ranks: Ranks, *, precision: str) -> None:
    """Shard every parameter over the data axis (FSDP2), a group a layer and one for the rest.

    In bfloat16 the layers are gathered and computed in it, and gradients are summed in float32.
    Source: Zhao et al. 2023, arXiv 2304.11277.
    """
    mesh = ranks.mesh["data"]
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in part.layers.values():
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(part, mesh=mesh, mp_policy=policy)


def _tie(part: Decoder) -> None:
    """Let head and embedding share one parameter again after both were rebuilt."""
    if part.is_last and part.shape.tied_head:
        part.head.weight = part.embedding.weight


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


def held_index(parameter: DTensor) -> tuple[slice, ...]:
    """Return the slice of each axis of the whole tensor that this rank holds."""
    size, offset = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(slice(first, first + n) for first, n in zip(offset, size, strict=True))
