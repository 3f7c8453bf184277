"""What flows between the modules, measured on a sample of the rows of some steps.

Hooks stand at the modules all the time and do nothing but look whether this step is measured. What
they find stays on the device until it is asked for, so that the forward pass never waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

ROWS = 256
"""Most rows (tokens, or images times places) of an output that are looked at."""
_SEQUENCES, _QUERIES = 2, 8
_SATURATED = 0.98
_RECTIFIERS = (nn.ReLU, nn.ReLU6)
_SQUASHERS = (nn.Sigmoid, nn.Tanh)
_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_HEADS = ("head", "lm_head", "classifier", "fc", "output")

GROUPS = ("output_rms", "dead", "saturated", "entropy", "log_z", "rows_used", "ids_a_row")


class Activations:
    """Hooks at the modules of one rank.

    Attributes:
        active: Whether the forward passes that come are measured.
        names: Modules measured, by group.

    - `output_rms`: root mean square of what a layer returns (a member of a ModuleList or
      ModuleDict; of a model without such, each matrix);
    - `dead`: share of the units behind a rectifier that are zero in every row;
    - `saturated`: share of a sigmoid's or tanh's outputs that are within 1 % of an end;
    - `entropy`: entropy of attention over its largest possible value, mean over heads; of modules
      with a function `attend(queries, keys, values, past, ...)`;
    - `log_z`: mean absolute log-partition of the logits;
    - `rows_used`, `ids_a_row`: share of an embedding's rows that were ever asked for in measured
      steps, and how many ids came for each.

    Args:
        logits: Name of the module that returns logits; None = the last matrix, where its name says
            that it is a head.
        attention: Whether attention is measured; not where a rank has a part of the positions.
    """

    def __init__(
        self, parts: Sequence[nn.Module], *, logits: str | None = None, attention: bool = True
    ) -> None:
        self.active = False
        self.names: dict[str, list[str]] = {group: [] for group in GROUPS}
        self._found: dict[tuple[str, str], list[Tensor]] = {}
        self._seen: dict[str, Tensor] = {}
        self._ids: dict[str, int] = {}
        self._removals: list[Callable[[], None]] = []
        modules = {name: one for part in parts for name, one in part.named_modules() if name}
        head = logits or _head_of(modules)
        layers = _layers_of(modules)
        for name, module in modules.items():
            if name in layers:
                self._hook(module, name, "output_rms", _rms)
            if isinstance(module, _RECTIFIERS):
                self._hook(module, name, "dead", _dead)
            if isinstance(module, _SQUASHERS):
                self._hook(module, name, "saturated", _saturated_of(module))
            if name == head:
                self._hook(module, name, "log_z", _log_z)
            if isinstance(module, nn.Embedding):
                self._watch_ids(module, name)
            if attention and callable(getattr(module, "attend", None)):
                self._watch_attention(module, name)

    def taken(self, group: str) -> list[float]:
        """Return what was found since the last call, in the order of `names`; NaN = nothing."""
        if group in {"rows_used", "ids_a_row"}:
            return self._rows(group)
        values = []
        for name in self.names[group]:
            found = self._found.pop((group, name), [])
            values.append(torch.stack(found).mean() if found else torch.tensor(math.nan))
        if not values:
            return []
        # One transfer for all.
        numbers: list[float] = torch.stack(
            [one.float().to(values[0].device) for one in values]
        ).tolist()
        return numbers

    def remove(self) -> None:
        """Take all hooks away."""
        for remove in self._removals:
            remove()
        self._removals.clear()

    def _measures(self) -> bool:
        """Tell whether a forward pass is to be measured; evaluations need no gradients."""
        return self.active and torch.is_grad_enabled()

    def _rows(self, group: str) -> list[float]:
        if group == "rows_used":
            return [float(self._seen[name].float().mean()) for name in self.names[group]]
        return [self._ids[name] / len(self._seen[name]) for name in self.names[group]]

    def _hook(
        self, module: nn.Module, name: str, group: str, measure: Callable[[Tensor], Tensor]
    ) -> None:
        self.names[group].append(name)

        def look(_module: nn.Module, _inputs: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if self._measures() and tensor is not None:
                with torch.no_grad():
                    self._found.setdefault((group, name), []).append(measure(tensor.detach()))

        self._removals.append(module.register_forward_hook(look).remove)

    def _watch_ids(self, module: nn.Embedding, name: str) -> None:
        self.names["rows_used"].append(name)
        self.names["ids_a_row"].append(name)
        self._seen[name] = torch.zeros(module.num_embeddings, dtype=torch.bool)
        self._ids[name] = 0

        def look(_module: nn.Module, inputs: Any) -> None:
            ids = first_tensor(inputs)
            if self._measures() and ids is not None:
                flat = ids.detach().reshape(-1).cpu()
                self._seen[name][flat] = True
                self._ids[name] += flat.numel()

        self._removals.append(module.register_forward_pre_hook(look).remove)

    def _watch_attention(self, module: nn.Module, name: str) -> None:
        self.names["entropy"].append(name)
        attend: Callable[..., Tensor] = getattr(module, "attend")  # noqa: B009 - of any module

        def watched(queries: Tensor, keys: Tensor, values: Tensor, past: int, *more: Any) -> Tensor:
            # What else there is, such as documents, narrows what a query sees.
            if self._measures() and all(one is None for one in more):
                with torch.no_grad():
                    found = _entropy(queries.detach(), keys.detach(), past)
                    self._found.setdefault(("entropy", name), []).append(found)
            return attend(queries, keys, values, past, *more)

        setattr(module, "attend", watched)  # noqa: B010
        self._removals.append(lambda: setattr(module, "attend", attend))


def first_tensor(value: Any) -> Tensor | None:
    """Return the first tensor of what a module takes or returns, its local part."""
    if isinstance(value, tuple | list) and value:
        return first_tensor(value[0])
    if isinstance(value, DTensor):
        return value.to_local()
    return value if isinstance(value, Tensor) else None


def _layers_of(modules: dict[str, nn.Module]) -> set[str]:
    lists = [
        name for name, one in modules.items() if isinstance(one, nn.ModuleList | nn.ModuleDict)
    ]
    members = {name for name in modules if name.rpartition(".")[0] in lists}
    return members or {name for name, one in modules.items() if isinstance(one, _WEIGHTED)}


def _head_of(modules: dict[str, nn.Module]) -> str | None:
    matrices = [name for name, one in modules.items() if isinstance(one, nn.Linear)]
    if matrices and matrices[-1].rpartition(".")[2] in _HEADS:
        return matrices[-1]
    return None


def _sample(output: Tensor) -> Tensor:
    """Return some rows of an output as (rows, units); of images the channels are the units."""
    flat = output.movedim(1, -1) if output.dim() == 4 else output
    flat = flat.reshape(-1, flat.shape[-1])
    return flat[:: max(1, len(flat) // ROWS)]


def _rms(output: Tensor) -> Tensor:
    return _sample(output).float().square().mean().sqrt()


def _dead(output: Tensor) -> Tensor:
    return (_sample(output) <= 0).all(dim=0).float().mean()


def _saturated_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    def measure(output: Tensor) -> Tensor:
        rows = _sample(output).float()
        centred = 2 * rows - 1 if isinstance(module, nn.Sigmoid) else rows
        return (centred.abs() > _SATURATED).float().mean()

    return measure


def _log_z(logits: Tensor) -> Tensor:
    return _sample(logits).float().logsumexp(dim=-1).abs().mean()


def _entropy(q_BHTK: Tensor, k_BGSK: Tensor, past: int) -> Tensor:
    """Return the entropy of some late queries of some sequences over log of the keys they see."""
    T = q_BHTK.shape[2]
    if T < 2:
        return torch.full((), math.nan, device=q_BHTK.device)
    places = torch.linspace(T // 2, T - 1, min(_QUERIES, T - T // 2)).long().to(q_BHTK.device)
    q_BHQK = q_BHTK[:_SEQUENCES].index_select(2, places).float()
    repeat = q_BHTK.shape[1] // k_BGSK.shape[1]
    k_BHSK = k_BGSK[:_SEQUENCES].float().repeat_interleave(repeat, dim=1)
    scores_BHQS = q_BHQK @ k_BHSK.mT / math.sqrt(q_BHTK.shape[-1])
    visible_QS = torch.arange(k_BHSK.shape[2], device=places.device) <= (past + places)[:, None]
    p_BHQS = scores_BHQS.masked_fill(~visible_QS, -math.inf).softmax(dim=-1)
    entropy_BHQ = torch.special.entr(p_BHQS).sum(dim=-1)
    mean: Tensor = (entropy_BHQ / (past + places + 1).float().log()).mean()
    return mean
