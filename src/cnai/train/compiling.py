"""Compile layers with torch.compile, where the machine can.

A layer is compiled, not the model: all layers have the same code, so one compilation serves them
all, and what gathers or sends between layers stays outside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cnai.models import Decoder

_COMPILERS = ("g++", "c++", "clang++", "gcc", "cc", "clang")


def missing_compiler() -> str | None:
    """Say what is missing for torch.compile, None = nothing; needs no torch."""
    asked = os.environ.get("CXX")
    if any(shutil.which(name) for name in ((asked,) if asked else _COMPILERS)):
        return None
    return f"there is no C++ compiler ({asked or ', '.join(_COMPILERS)}) for torch.compile"


def compile_layers(parts: Iterable[Decoder]) -> None:
    """Compile each layer at its first call; do nothing on a machine without a compiler."""
    if missing_compiler():
        return
    for part in parts:
        for layer in part.layers.values():
            layer.compile()
