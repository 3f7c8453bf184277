"""Tiny decoders for tests, and a hypothesis strategy over their shapes."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.initialise import fill, initial_weights

TINY = DecoderShape(
    layers=3, width=16, heads=4, kv_heads=2, ffn_width=24, vocab=40, sequence=12, tied_head=True
)


@st.composite
def shapes(draw: st.DrawFn) -> DecoderShape:
    """Draw a shape that a decoder can have, small enough to run."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    return DecoderShape(
        layers=draw(st.integers(1, 3)),
        width=heads * 2 * draw(st.integers(1, 3)),
        heads=heads,
        kv_heads=kv_heads,
        ffn_width=draw(st.integers(1, 20)),
        vocab=draw(st.integers(2, 30)),
        sequence=draw(st.integers(2, 16)),
        tied_head=draw(st.booleans()),
    )


def filled(shape: DecoderShape, seed: int = 0) -> Decoder:
    """Build a decoder with initial weights."""
    decoder = Decoder(shape)
    fill(decoder, initial_weights(shape, seed))
    return decoder


def tokens(shape: DecoderShape, rows: int = 2, length: int | None = None) -> torch.Tensor:
    """Draw tokens (B, T), the same ones each time."""
    generator = torch.Generator().manual_seed(7)
    size = (rows, shape.sequence if length is None else length)
    return torch.randint(shape.vocab, size, generator=generator)
