"""Let layers forget their activations and compute them again in backward.

A layer then keeps its input alone. Source: Chen et al. 2016, arXiv 1604.06174.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch.utils.checkpoint import checkpoint

from cnai.core.recompute import Recompute
from cnai.models import Decoder


def recompute_layers(parts: Iterable[Decoder], mode: Recompute) -> None:
    """Mark the layers that `mode` covers.

    The forward method is wrapped, not the module: names of parameters stay, and what gathers or
    splits the layer's inputs from outside is not done twice.
    """
    for part in parts:
        for index, layer in part.layers.items():
            if mode.covers(int(index)):
                # Nothing in a layer is drawn at random, so there is no state to bring back.
                layer.forward = partial(
                    checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
                )
