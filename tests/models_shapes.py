"""Tiny decoders for tests, and a hypothesis strategy over their shapes."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import strategies as st

from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.initialise import fill, initial_weights

TINY = DecoderShape(
    layers=3, width=16, heads=4, kv_heads=2, ffn_width=24, vocab=40, sequence=12, tied_head=True
)

MISTRAL = replace(TINY, head_size=6)
QWEN2 = replace(TINY, attention_bias=True)
QWEN3 = replace(TINY, qk_norm=True, head_size=6)

MIXTRAL = replace(TINY, experts=4, experts_per_token=2, expert_width=24)
QWEN3_MOE = replace(
    QWEN3, layers=4, experts=5, experts_per_token=2, expert_width=12, sparse_step=2,
    normed_choice=False,
)  # fmt: skip
QWEN3_MOE_DENSE_LAYER = replace(
    QWEN3_MOE, sparse_step=1, dense_layers=(1,), normed_choice=True, layers=3
)


@st.composite
def shapes(draw: st.DrawFn) -> DecoderShape:
    """Draw a shape that a decoder can have, small enough to run."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    heads_fill_the_width = draw(st.booleans())
    options = draw(st.sampled_from(["", "attention_bias", "qk_norm"]))
    width = heads * 2 * draw(st.integers(1, 3))
    head_size = None if heads_fill_the_width else 2 * draw(st.integers(1, 4))
    return DecoderShape(
        layers=draw(st.integers(1, 3)),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        ffn_width=draw(st.integers(1, 20)),
        vocab=draw(st.integers(2, 30)),
        sequence=draw(st.integers(2, 16)),
        tied_head=draw(st.booleans()),
        head_size=None if head_size == width // heads else head_size,
        attention_bias=options == "attention_bias",
        qk_norm=options == "qk_norm",
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
