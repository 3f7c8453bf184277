"""A module of the user's own: what is known of it, and the part of it that a stage holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cnai.core.errors import SpecError
from cnai.core.module import ModuleFacts, ModuleTable, Split, Unit
from cnai.models.sharding_table import check_table, read_table, splits_of


def module_and_table(built: object, *, name: str) -> tuple[nn.Module, ModuleTable]:
    """Take apart what a user's function returned, and hold the table against the module.

    Raises:
        SpecError: It is no module, has no forward, or the table does not fit it.
    """
    module, plain = built if isinstance(built, tuple) and len(built) == 2 else (built, {})
    hint = "return a torch module, or a module and its sharding table"
    if not isinstance(module, nn.Module):
        raise SpecError(
            f"`{name}` returned {type(module).__name__}, no torch module",
            where="model.module",
            hint=hint,
        )
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise SpecError(
            f"the {type(module).__name__} of `{name}` has no forward",
            where="model.module",
            hint="define `forward` in it",
        )
    table = read_table(plain, name=name)
    check_table(module, table, name=name)
    return module, table


def layers_of(module: nn.Module, table: ModuleTable) -> list[tuple[int, nn.Module]]:
    """Return the layers that a module, or a part of one, holds, with their global index."""
    if table.layers is None:
        return []
    row = module.get_submodule(table.layers)
    return [(int(index), layer) for index, layer in row.named_children()]


def facts_of(module: nn.Module, table: ModuleTable, *, name: str) -> ModuleFacts:
    """Count a whole module, which may lie on the meta device."""
    words = splits_of(module, table)
    units: dict[str, Unit] = defaultdict(Unit)
    for path, parameter in module.named_parameters():
        unit = _unit_of(path, table)
        size, trained = parameter.numel(), parameter.numel() if parameter.requires_grad else 0
        if _is_split(path, words, module):
            more = Unit(split=size, trained_split=trained)
        else:
            more = Unit(whole=size, trained_whole=trained)
        units[unit] = units[unit].beside(more)
    layers = tuple(units[f"layer {index}"] for index, _ in layers_of(module, table))
    return ModuleFacts(
        name=name,
        layers=layers,
        inlet=units["inlet"],
        outlet=units["rest"],
        widths=tuple(_widths(module, table, words)),
        no_split=_no_split(module, words),
        no_cut=_no_cut(module, table),
        no_recompute=_no_recompute(module, table),
    )


def _unit_of(path: str, table: ModuleTable) -> str:
    if table.layers and path.startswith(f"{table.layers}."):
        return f"layer {path[len(table.layers) + 1 :].split('.', maxsplit=1)[0]}"
    return "inlet" if _within(path, table.inlet) else "rest"


def _within(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _is_split(path: str, words: Mapping[str, Split], module: nn.Module) -> bool:
    """Tell whether a parameter is split; the bias of a part that is split by rows is whole."""
    owner, _, last = path.rpartition(".")
    word = words.get(owner)
    if word is Split.ROW:
        return last != "bias" or isinstance(module.get_submodule(owner), nn.Embedding)
    return word is Split.COLUMN


def _widths(
    module: nn.Module, table: ModuleTable, words: Mapping[str, Split]
) -> Iterator[tuple[str, int]]:
    """Yield what the size of a group must divide."""
    if table.heads is not None:
        yield "heads", table.heads
    for path, word in words.items():
        part = module.get_submodule(path) if word in {Split.COLUMN, Split.ROW} else None
        if isinstance(part, nn.Linear):
            yield path, part.out_features if word is Split.COLUMN else part.in_features
        if isinstance(part, nn.Embedding):
            yield path, part.embedding_dim if word is Split.COLUMN else part.num_embeddings


def _no_split(module: nn.Module, words: Mapping[str, Split]) -> str | None:
    if not {Split.COLUMN, Split.ROW} & set(words.values()):
        return "no sharding table says which of its matrices are split"
    for names in _shared(module):
        if any(_is_split(name, words, module) for name in names):
            return f"{' and '.join(f'`{name}`' for name in names)} are one parameter"
    return None


def _no_cut(module: nn.Module, table: ModuleTable) -> str | None:
    if table.layers is None:
        return "its sharding table names no `layers`"
    placed = (*table.inlet, table.layers, *table.outlet)
    named = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    left = [name for name in named if not _within(name, placed)]
    if left:
        return f"`{left[0]}` lies outside of inlet, layers and outlet"
    for names in _shared(module):
        if len({_unit_of(name, table) for name in names}) > 1:
            return f"{' and '.join(f'`{name}`' for name in names)} are one parameter"
    return None


def _no_recompute(module: nn.Module, table: ModuleTable) -> str | None:
    if table.layers is None:
        return "its sharding table names no `layers`"
    row = module.get_submodule(table.layers)
    counted = [name for name, value in row.named_buffers() if not value.is_floating_point()]
    if counted:
        return f"`{table.layers}.{counted[0]}` would be counted twice"
    return None


def _shared(module: nn.Module) -> list[list[str]]:
    """Return the names of each parameter that has several."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [found for found in names.values() if len(found) > 1]


class Cut(nn.Module):
    """The part of a module that one stage of a pipeline holds, under the names of the whole.

    The module is taken as `inlet -> layers -> outlet`: the paths of the inlet one after the other,
    the layers with one tensor in and one out, the paths of the outlet.
    """

    def __init__(
        self, module: nn.Module, table: ModuleTable, *, first_layer: int, end_layer: int
    ) -> None:
        super().__init__()
        layers = layers_of(module, table)
        self._before = table.inlet if first_layer == 0 else ()
        self._after = table.outlet if end_layer == len(layers) else ()
        self._row = table.layers or ""
        for path in (*self._before, *self._after):
            _put(self, path, module.get_submodule(path))
        held = {str(index): layer for index, layer in layers if first_layer <= index < end_layer}
        _put(self, self._row, nn.ModuleDict(held))

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Run a batch, or what the stage before hands over, through what is held."""
        row = self.get_submodule(self._row)
        steps = [
            *(self.get_submodule(path) for path in self._before),
            *row.children(),
            *(self.get_submodule(path) for path in self._after),
        ]
        flow: Any = steps[0](*inputs, **named)
        for step in steps[1:]:
            flow = step(flow)
        return flow


def _put(root: nn.Module, path: str, part: nn.Module) -> None:
    """Hang a module under a dotted path, with empty modules in between."""
    *outer, last = path.split(".")
    place = root
    for name in outer:
        if name not in place._modules:
            place.add_module(name, nn.Module())
        place = place.get_submodule(name)
    place.add_module(last, part)


def check_flow(
    module: nn.Module, table: ModuleTable, inputs: Any, named: Any, *, name: str
) -> None:
    """Hold a module's own forward against `inlet -> layers -> outlet` on some rows.

    Raises:
        SpecError: They differ, so stages would compute something else.
    """
    was_training = module.training
    module.eval()
    whole = Cut(module, table, first_layer=0, end_layer=len(layers_of(module, table)))
    try:
        with torch.no_grad():
            expected, found = module(*inputs, **named), whole(*inputs, **named)
    finally:
        module.train(was_training)
    same = isinstance(expected, Tensor) and isinstance(found, Tensor)
    if not same or expected.shape != found.shape or not torch.allclose(expected, found, atol=1e-5):
        raise SpecError(
            f"the module of `{name}` computes something else than its inlet, layers and outlet one "
            "after the other, so it cannot be cut into stages",
            where="parallel.pipeline_parallel.stages",
            hint="move what lies between them into modules of the inlet or the outlet, or remove "
            "`parallel.pipeline_parallel.stages`",
        )
