"""How many bytes a rank sends, by the axis of the mesh, counted where torch hands them on.

Every collective and message of a step passes torch's dispatcher, also those of sharded weights, of
split layers and of the pipeline, so one counter there sees all. What a collective sends is counted
as that of a ring: (n - 1) / n of the payload, twice for a sum (Thakur et al. 2005, Int. J. High
Performance Computing Applications 19(1)).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cnai.train.ranks import Ranks

_ROUNDS = {
    "allreduce_": 2, "all_reduce": 2, "all_reduce_": 2, "_allgather_base_": 1, "allgather_": 1,
    "all_gather_into_tensor": 1, "_reduce_scatter_base_": 1, "reduce_scatter_": 1,
    "reduce_scatter_tensor": 1, "alltoall_base_": 1, "all_to_all_single": 1, "broadcast_": 1,
}  # fmt: skip
"""How often a ring passes (n - 1) / n of the larger side of a collective on."""


class Traffic(TorchDispatchMode):
    """Counts the bytes that this rank sends while it is entered.

    Attributes:
        sent_bytes: By axis; `tie` for a tied embedding's two owners, `world` for messages of all.
            Where one axis holds all ranks it has the group of all, and messages of all count there.
        messages: Collectives and sends, by axis.
    """

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        axes = ranks.mesh.mesh_dim_names or ()
        self._axes = {ranks.mesh.get_group(axis).group_name: axis for axis in axes}
        for name, group in (("tie", ranks.tie), ("context", ranks.context)):
            if group is not None:
                self._axes.setdefault(group.group_name, name)
        if ranks.experts is not None:
            for axis in ("expert", "expert_copy"):
                self._axes.setdefault(ranks.experts.get_group(axis).group_name, axis)
        self.sent_bytes: defaultdict[str, float] = defaultdict(float)
        self.messages: defaultdict[str, int] = defaultdict(int)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and count it if it is a message."""
        result = func(*args, **(kwargs or {}))
        namespace, _, name = func._schema.name.partition("::")
        if namespace in {"c10d", "_c10d_functional"}:
            self._count(name, [*args, *(kwargs or {}).values()], result)
        return result

    def _count(self, name: str, args: Sequence[Any], result: Any) -> None:
        axis, size = self._group(args)
        if name == "send":
            self._add(axis, _bytes(args[:1]))
        elif name in _ROUNDS and size > 1:
            payload = max(_bytes([one]) for one in (*args, result))
            self._add(axis, _ROUNDS[name] * payload * (size - 1) / size)

    def _add(self, axis: str, sent: float) -> None:
        self.sent_bytes[axis] += sent
        self.messages[axis] += 1

    def _group(self, args: Sequence[Any]) -> tuple[str, int]:
        """Return the axis and the ranks of the group that a message goes through."""
        for one in args:
            group = _group_of(one)
            if group is not None:
                return self._axes.get(group.group_name, "world"), group.size()
        return "world", 1


def _group_of(value: Any) -> dist.ProcessGroup | None:
    if isinstance(value, str):
        resolve: Callable[[str], dist.ProcessGroup] = dist.distributed_c10d._resolve_process_group  # type: ignore[assignment]
        return resolve(value) if value not in _OPERATIONS else None
    if type(value).__name__ == "ScriptObject":
        try:
            return dist.ProcessGroup.unbox(value)
        except (RuntimeError, TypeError):  # another kind of object, such as an operation
            return None
    return None


_OPERATIONS = {"sum", "avg", "max", "min", "product"}


def _bytes(values: Sequence[Any]) -> int:
    return sum(one.numel() * one.element_size() for one in _tensors(values))


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for one in values:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)
