"""The shape of a decoder, and what follows from it by arithmetic: parameters and FLOPs.

The arithmetic lives here, without torch, because the planner needs it on a laptop; tests hold it
against the real model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    Attributes:
        layers: Transformer layers.
        width: Hidden size D.
        heads: Query heads; `width` must divide by it.
        kv_heads: Key and value heads; `heads` must divide by it.
        ffn_width: Inner size of the feed-forward part.
        vocab: Tokens in the vocabulary.
        sequence: Tokens in a training sequence (and the longest context served).
        rope_theta: Base of the rotary frequencies.
        norm_eps: Added to the mean square in RMSNorm.
        tied_head: The output head shares the embedding's weight.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn_width: int
    vocab: int
    sequence: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tied_head: bool = False

    @property
    def head_width(self) -> int:
        """Size of one head."""
        return self.width // self.heads

    @property
    def attention_parameters(self) -> int:
        """Weights of the four projections of one layer."""
        kv_width = self.kv_heads * self.head_width
        return self.width * self.width * 2 + self.width * kv_width * 2

    @property
    def ffn_parameters(self) -> int:
        """Weights of the three feed-forward matrices of one layer."""
        return 3 * self.width * self.ffn_width

    @property
    def layer_parameters(self) -> int:
        """Parameters of one transformer layer, with its two norms."""
        return self.attention_parameters + self.ffn_parameters + 2 * self.width

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding."""
        return self.vocab * self.width

    @property
    def head_parameters(self) -> int:
        """Parameters of the final norm and of an untied output head."""
        return self.width + (0 if self.tied_head else self.vocab * self.width)

    @property
    def parameters(self) -> int:
        """All parameters, each counted once."""
        return (
            self.embedding_parameters + self.layers * self.layer_parameters + self.head_parameters
        )

    def layer_flops(self, sequence: int) -> int:
        """Forward FLOPs of one layer for one token in a sequence of that length.

        Two per weight in a matrix product, and 4 x D x T for scores and weighted sum, over the
        full square as the dense kernels compute it. Source: Kaplan et al. 2020, arXiv 2001.08361,
        table 1, with the attention term of Narayanan et al. 2021, arXiv 2104.04473, section 5.1.
        """
        matrices = 2 * (self.attention_parameters + self.ffn_parameters)
        return matrices + 4 * self.width * sequence

    def head_flops(self) -> int:
        """Forward FLOPs of the output head for one token."""
        return 2 * self.vocab * self.width

    def train_flops_per_token(self, sequence: int | None = None) -> int:
        """FLOPs of forward and backward (three times forward) for one token."""
        length = self.sequence if sequence is None else sequence
        return 3 * (self.layers * self.layer_flops(length) + self.head_flops())
