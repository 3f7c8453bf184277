"""The same bits from the same run, every time."""

from __future__ import annotations

import hashlib
import os

import torch

from cnai.core.layout import Place


def make_deterministic() -> None:
    """Allow only kernels that give the same bits every time; one that has no such form raises.

    Call it before the first matrix product on a GPU, whose library reads the variable then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


def seed_step(seed: int, step: int, place: Place, device: torch.device) -> None:
    """Seed what draws on this rank's devices in a step.

    Stages and copies of the model do not share the draws, but a split layer does. torch.manual_seed
    would queue a call, with its stack, for a GPU that may never come.
    """
    words = f"{seed} {step} {place.pipeline} {place.data}".encode()
    of_step = int.from_bytes(hashlib.sha256(words).digest()[:8])
    torch.default_generator.manual_seed(of_step)
    if device.type == "cuda":
        torch.cuda.manual_seed(of_step)
