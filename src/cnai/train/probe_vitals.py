"""What a rank can say of itself: memory, hashes of its rows and of its weights, its mode."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from cnai.core.batches import Rows

_STATM = Path("/proc/self/statm")
_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def resident_bytes() -> int | None:
    """Return the host memory of this process; None where the system does not tell."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def device_bytes(device: torch.device) -> int | None:
    """Return the memory of this process's tensors on a device of its own."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def hash_of_rows(rows: Rows) -> str:
    """Return a hash of the rows of a batch, whatever columns they have."""
    if isinstance(rows, np.ndarray):
        columns = [rows]
    elif isinstance(rows, tuple):
        columns = [np.asarray(one) for one in rows]
    else:
        columns = [np.asarray(rows[name]) for name in sorted(rows)]
    state = xxhash.xxh3_64()
    for column in columns:
        state.update(np.ascontiguousarray(column).data.cast("B"))
    return state.hexdigest()


def hash_of_weights(tensors: Iterable[Tensor]) -> str:
    """Return a hash of numbers that changes with every single bit of them.

    Each tensor is read as whole numbers and summed, modulo 2^64: the order of a sum does not show,
    so the hash is the same on every device, and a flipped bit always changes a sum.
    """
    sums = [_sum(one.detach()) for one in tensors]
    total = 0
    for value in torch.stack(sums).tolist() if sums else ():
        total = (total * _ODD + int(value)) & _MASK
    return f"{total:016x}"


def _sum(tensor: Tensor) -> Tensor:
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.contiguous().view(-1).view(whole[tensor.element_size()])
    return flat.sum(dtype=torch.int64)


class Targets:
    """Counts targets: who knows only how often each occurs has their entropy as loss.

    Of packed tokens all are targets, of columns the last, where it holds whole numbers.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(0, dtype=np.int64)

    def add(self, rows: Rows) -> None:
        """Take some rows."""
        last = rows[-1] if isinstance(rows, tuple) else rows
        if isinstance(last, dict):
            last = last.get("target", np.zeros(0))
        flat = np.asarray(last).reshape(-1)
        if flat.dtype.kind not in "iu" or flat.size == 0 or flat.min() < 0:
            return
        counts = np.bincount(flat, minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def entropy(self) -> float | None:
        """Return the entropy of the targets so far in nats; None where they are no classes."""
        total = self._counts.sum()
        if total == 0:
            return None
        share = self._counts[self._counts > 0] / total
        return float(-(share * np.log(share)).sum())


def training_share(parts: Sequence[nn.Module]) -> float | None:
    """Return the share of modules that act differently in training which are in that mode."""
    modes = [
        module.training
        for part in parts
        for module in part.modules()
        if isinstance(module, _BatchNorm)
        or (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0)
    ]
    return sum(modes) / len(modes) if modes else None


def optimizer_steps(rules: Iterable[torch.optim.Optimizer]) -> int | None:
    """Return the steps that optimizers have counted; None where they count none."""
    counts = [
        int(state["step"])
        for rule in rules
        for state in list(rule.state.values())[:1]
        if "step" in state
    ]
    return max(counts, default=None)


def arrays_of(batch: Any) -> Any:
    """Return the rows of a batch as arrays, whatever holds them."""
    if isinstance(batch, Tensor):
        return batch.detach().cpu().numpy()
    if isinstance(batch, Mapping):
        return {str(name): arrays_of(one) for name, one in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(arrays_of(one) for one in batch)
    return np.asarray(batch)
