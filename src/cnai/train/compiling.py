"""Compile layers with torch.compile, where the machine can.

A layer is compiled, not the model: all layers have the same code, so one compilation serves them
all, and what gathers or sends between layers stays outside.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cnai.models import Decoder
from cnai.train.compiler import missing_compiler


def compile_layers(parts: Iterable[Decoder]) -> None:
    """Compile each layer at its first call; do nothing on a machine without a compiler.

    The forward method is compiled, so that hooks which gather or send stay outside. Recomputing is
    put around it afterwards: inside, it would keep the layer from being compiled at all.
    """
    if missing_compiler():
        return
    for part in parts:
        for layer in part.layers.values():
            layer.forward = torch.compile(layer.forward)
