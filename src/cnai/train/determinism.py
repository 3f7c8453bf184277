"""The same bits from the same run, every time."""

from __future__ import annotations

import os

import torch


def make_deterministic() -> None:
    """Allow only kernels that give the same bits every time; one that has no such form raises.

    Call it before the first matrix product on a GPU, whose library reads the variable then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
