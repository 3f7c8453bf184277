"""Compile layers with torch.compile, where the machine can.

A layer is compiled, not the model: all layers have the same code, so one compilation serves them
all, and what gathers or sends between layers stays outside. A layer that is split over the model
axis is left as it is: torch 2.13 compiles its forward pass, and its backward pass then fails. So
is one that exchanges positions inside, and one with experts, whose rows differ in number each time.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from cnai.core.layout import Layout
from cnai.models import Decoder
from cnai.train.compiler import missing_compiler


def compile_layers(parts: Iterable[Decoder], layout: Layout) -> None:
    """Compile each whole layer at its first call; do nothing on a machine without a compiler.

    The forward method is compiled, so that hooks which gather or send stay outside. Recomputing is
    put around it afterwards: inside, it would keep the layer from being compiled at all.
    """
    if missing_compiler() or layout.context > 1:
        return
    for part in parts:
        for index, layer in part.layers.items():
            if not layout.is_split(int(index)) and not part.shape.is_sparse(int(index)):
                layer.forward = torch.compile(layer.forward)
