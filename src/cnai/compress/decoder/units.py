"""The layers that runtimes fuse, and that therefore must share a form.

Queries, keys and values are one product in vLLM, and so are gate and up. A unit is such a group in
one layer; it is what the guard keeps or gives up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cnai.core.shape import DecoderShape

_KINDS = {
    "qkv": ("attention", ("q_proj", "k_proj", "v_proj")),
    "o": ("attention", ("o_proj",)),
    "gate_up": ("ffn", ("gate_proj", "up_proj")),
    "down": ("ffn", ("down_proj",)),
}
_EXPERTS = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Matrices that share a form.

    Attributes:
        layer: Index of the layer.
        kind: `qkv`, `o`, `gate_up`, `down`, or `experts` for all experts of a layer.
        names: Our names of the parameters.
    """

    layer: int
    kind: str
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name for people."""
        return f"layer {self.layer} {self.kind}"


def units_of(shape: DecoderShape) -> tuple[Unit, ...]:
    """Return all units of a decoder, by layer."""
    return tuple(unit for layer in range(shape.layers) for unit in _of_layer(shape, layer))


def _of_layer(shape: DecoderShape, layer: int) -> Iterator[Unit]:
    for kind, (part, names) in _KINDS.items():
        if part == "attention" or not shape.is_sparse(layer):
            stem = f"layers.{layer}.{part}"
            yield Unit(
                layer=layer, kind=kind, names=tuple(f"{stem}.{name}.weight" for name in names)
            )
    if shape.is_sparse(layer):
        stem = f"layers.{layer}.ffn.experts"
        yield Unit(layer=layer, kind="experts", names=tuple(f"{stem}.{name}" for name in _EXPERTS))
