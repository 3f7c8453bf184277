"""From a user's module and a place to this rank's part of it, as `build` does for a decoder.

Every rank builds the whole module with the same seed and keeps its part: the first values come from
the user's own code, which torch cannot run for a slice alone. Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from cnai.core.layout import Layout, ParallelPlan, Sharding
from cnai.core.module import ModuleTable, Split
from cnai.core.recompute import Recompute
from cnai.core.spec.sections import Train
from cnai.models.sharding_table import splits_of
from cnai.models.user_module import Cut, layers_of
from cnai.train.build import shard_part
from cnai.train.compiler import missing_compiler
from cnai.train.ranks import Ranks


def build_module(
    module: nn.Module, table: ModuleTable, plan: ParallelPlan, ranks: Ranks, settings: Train
) -> tuple[nn.Module, ...]:
    """Return this rank's parts of a whole module, one a stage, split and sharded."""
    parts: tuple[nn.Module, ...] = (module,)
    if plan.layout.pipeline > 1:
        parts = tuple(
            Cut(module, table, first_layer=stage.first_layer, end_layer=stage.end_layer)
            for stage in plan.stages_of(ranks.place.pipeline)
        )
    for part in parts:
        _split(part, table, plan.layout, ranks)
        part.to(ranks.device)
        _wrap_layers(part, table, plan.layout, settings)
    if plan.sharding is not Sharding.NONE:
        for part in parts:
            layers = [layer for _, layer in layers_of(part, table)]
            shard_part(part, layers, plan, ranks, precision=settings.precision)
    return parts


def summed_parameters(
    parts: Sequence[nn.Module], table: ModuleTable, layout: Layout
) -> frozenset[str]:
    """Return the names of the parameters that each rank uses on its own columns only."""
    names: set[str] = set()
    for part in parts:
        last = _last(part, table)
        roots = [
            path
            for path, word in splits_of(part, table).items()
            if word is Split.SUMMED and layout.is_split(_layer_of(path, table, last))
        ]
        names |= {
            name
            for name, _ in part.named_parameters()
            if any(name == root or name.startswith(f"{root}.") for root in roots)
        }
    return frozenset(names)


def _split(part: nn.Module, table: ModuleTable, layout: Layout, ranks: Ranks) -> None:
    """Split what the table says; before `split_layer` nothing is."""
    if layout.model == 1:
        return
    last = _last(part, table)
    styles: dict[str, ParallelStyle] = {}
    for path, word in splits_of(part, table).items():
        if word in {Split.COLUMN, Split.ROW} and layout.is_split(_layer_of(path, table, last)):
            styles[path] = _style(part.get_submodule(path), word)
    if styles:
        parallelize_module(part, ranks.mesh["model"], styles, src_data_rank=None)


def _last(part: nn.Module, table: ModuleTable) -> int:
    return max((index for index, _ in layers_of(part, table)), default=0)


def _layer_of(path: str, table: ModuleTable, last: int) -> int:
    """Return the layer with which a part is split: the inlet goes with the first layer."""
    if table.layers and path.startswith(f"{table.layers}."):
        return int(path[len(table.layers) + 1 :].split(".", maxsplit=1)[0])
    return 0 if any(f"{path}.".startswith(f"{root}.") for root in table.inlet) else last


def _style(part: nn.Module, word: Split) -> ParallelStyle:
    if word is Split.COLUMN:
        return ColwiseParallel()
    if isinstance(part, nn.Embedding):
        return RowwiseParallel(input_layouts=Replicate())
    return RowwiseParallel()


def _wrap_layers(part: nn.Module, table: ModuleTable, layout: Layout, settings: Train) -> None:
    """Compile layers that are not split, and let those recompute that are asked to.

    What a layer draws at random is drawn again the same.
    """
    mode = Recompute(settings.recompute)
    compiles = settings.compile and not missing_compiler()
    for index, layer in layers_of(part, table):
        if compiles and not layout.is_split(index):
            layer.forward = torch.compile(layer.forward)
        if mode.covers(index):
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def sizes_of(module: nn.Module) -> Mapping[str, tuple[int, ...]]:
    """Return the size of every parameter that is trained, by its name."""
    return {
        name: tuple(value.shape) for name, value in module.named_parameters() if value.requires_grad
    }
