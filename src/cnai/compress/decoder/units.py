"""The layers that runtimes fuse, and that therefore must share a form.

Queries, keys and values are one product in vLLM, and so are gate and up. A unit is such a group in
one layer; it is what the guard keeps or gives up.
"""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.shape import DecoderShape

_KINDS = {
    "qkv": ("attention", ("q_proj", "k_proj", "v_proj")),
    "o": ("attention", ("o_proj",)),
    "gate_up": ("ffn", ("gate_proj", "up_proj")),
    "down": ("ffn", ("down_proj",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Matrices that share a form.

    Attributes:
        layer: Index of the layer.
        kind: `qkv`, `o`, `gate_up` or `down`.
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
    return tuple(
        Unit(
            layer=layer,
            kind=kind,
            names=tuple(f"layers.{layer}.{part}.{name}.weight" for name in names),
        )
        for layer in range(shape.layers)
        for kind, (part, names) in _KINDS.items()
    )
