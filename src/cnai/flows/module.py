"""The module of the user's own that a spec names: built, counted, measured."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from cnai.core.errors import SpecError
from cnai.core.module import ModuleFacts, ModuleTable
from cnai.core.spec import RunSpec
from cnai.flows.function import called, function_named
from cnai.models import ROW_LOSSES, RowLosses
from cnai.models.user_module import facts_of, module_and_table
from cnai.train.checkpoint import load_weights
from cnai.train.modules import sizes_of


def built(spec: RunSpec) -> tuple[nn.Module, ModuleTable]:
    """Build the module with the spec's seed; every call gives the same first values.

    Raises:
        SpecError: The function cannot be called, or returns something else than a module and
            perhaps its sharding table.
    """
    name = spec.model.module or ""
    torch.manual_seed(spec.train.seed)
    return module_and_table(called(name, where="model.module"), name=name)


@lru_cache(maxsize=4)
def facts(name: str) -> ModuleFacts:
    """Count a module without memory for its numbers, where its code allows that.

    Raises:
        SpecError: As `built`.
    """
    try:
        with torch.device("meta"):
            found = called(name, where="model.module")
    except SpecError:
        # Code that looks at numbers while it builds cannot run without them; if it is wrong
        # otherwise, it is so again here.
        found = called(name, where="model.module")
    module, table = module_and_table(found, name=name)
    return facts_of(module, table, name=name)


def losses_of(spec: RunSpec) -> RowLosses:
    """Return the loss that the spec names.

    Raises:
        SpecError: It is a function that cannot be imported.
    """
    known = ROW_LOSSES.get(spec.model.loss)
    if known is not None:
        return known
    losses: RowLosses = function_named(spec.model.loss, where="model.loss")
    return losses


@torch.no_grad()
def load_trained(module: nn.Module, buffers: dict[str, Tensor], checkpoint: Path) -> None:
    """Fill a module and its running statistics from a checkpoint.

    Raises:
        DataError: The checkpoint is damaged or belongs to another model.
    """
    found = load_weights(checkpoint, sizes_of(module), buffers=buffers)
    for name, parameter in module.named_parameters():
        if name in found:
            parameter.copy_(found[name])
