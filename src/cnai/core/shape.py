"""The shape of a decoder, and what follows from it by arithmetic: parameters and FLOPs.

The arithmetic lives here, without torch, because the planner needs it on a laptop; tests hold it
against the real model.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    With `attention_bias` it is a Qwen2, with `qk_norm` a Qwen3; Mistral has Llama's shape. With
    `experts` a layer's feed-forward part is a mixture: Qwen3-MoE with `qk_norm`, else Mixtral.

    Attributes:
        layers: Transformer layers.
        width: Hidden size D.
        heads: Query heads; `width` must divide by it unless `head_size` is given.
        kv_heads: Key and value heads; `heads` must divide by it.
        ffn_width: Inner size of the feed-forward part.
        vocab: Tokens in the vocabulary.
        sequence: Tokens in a training sequence (and the longest context served).
        rope_theta: Base of the rotary frequencies.
        norm_eps: Added to the mean square in RMSNorm.
        tied_head: The output head shares the embedding's weight.
        attention_bias: Queries, keys and values are projected with a bias.
        qk_norm: Queries and keys are normed, head by head, before they are turned.
        head_size: Size of one head where it is not `width` over `heads`; None = it is.
        experts: Experts of a sparse layer; 0 = all layers are dense.
        experts_per_token: Experts that each token goes through.
        expert_width: Inner size of an expert.
        sparse_step: Every so many layers one is sparse: the last of each such group.
        dense_layers: Layers that are dense all the same.
        normed_choice: The weights of the experts that a token goes through add up to 1.
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
    attention_bias: bool = False
    qk_norm: bool = False
    head_size: int | None = None
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    sparse_step: int = 1
    dense_layers: tuple[int, ...] = ()
    normed_choice: bool = True

    @property
    def head_width(self) -> int:
        """Size of one head."""
        return self.head_size or self.width // self.heads

    @property
    def query_width(self) -> int:
        """Size of all query heads together."""
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Size of all key (or value) heads together."""
        return self.kv_heads * self.head_width

    @property
    def attention_parameters(self) -> int:
        """Weights of the four projections of one layer, without biases."""
        return 2 * self.width * (self.query_width + self.kv_width)

    @property
    def bias_parameters(self) -> int:
        """Biases of one layer."""
        return self.query_width + 2 * self.kv_width if self.attention_bias else 0

    @property
    def norm_parameters(self) -> int:
        """Weights of the norms of one layer."""
        return 2 * self.width + (2 * self.head_width if self.qk_norm else 0)

    @property
    def ffn_parameters(self) -> int:
        """Weights of the three feed-forward matrices of one dense layer."""
        return 3 * self.width * self.ffn_width

    @property
    def expert_parameters(self) -> int:
        """Weights of the three matrices of one expert."""
        return 3 * self.width * self.expert_width

    @property
    def router_parameters(self) -> int:
        """Weights of the router of one sparse layer."""
        return self.width * self.experts

    def is_sparse(self, layer: int) -> bool:
        """Tell whether a layer has experts."""
        return (
            self.experts > 0
            and (layer + 1) % self.sparse_step == 0
            and layer not in self.dense_layers
        )

    @property
    def sparse_layers(self) -> int:
        """Number of layers with experts."""
        return sum(self.is_sparse(layer) for layer in range(self.layers))

    @property
    def layer_parameters(self) -> int:
        """Parameters of one dense transformer layer, with its biases and norms."""
        matrices = self.attention_parameters + self.ffn_parameters
        return matrices + self.bias_parameters + self.norm_parameters

    @property
    def sparse_layer_parameters(self) -> int:
        """Parameters of one transformer layer with all its experts and the router."""
        ffn = self.experts * self.expert_parameters + self.router_parameters
        return self.layer_parameters - self.ffn_parameters + ffn

    def parameters_of(self, layer: int) -> int:
        """Parameters of a layer."""
        return self.sparse_layer_parameters if self.is_sparse(layer) else self.layer_parameters

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
        layers = sum(self.parameters_of(layer) for layer in range(self.layers))
        return self.embedding_parameters + layers + self.head_parameters

    @property
    def active_parameters(self) -> int:
        """Those of them that a token goes through."""
        idle = (self.experts - self.experts_per_token) * self.expert_parameters
        return self.parameters - self.sparse_layers * idle

    def layer_flops(self, sequence: int, layer: int = 0) -> int:
        """Forward FLOPs of a layer for one token in a sequence of that length.

        Of the experts only those that a token goes through count.

        Two per weight in a matrix product, and 4 x H x K x T (H heads of width K) for scores and
        weighted sum, over the full square as the dense kernels compute it. Source: Kaplan et al.
        2020, arXiv 2001.08361, table 1, with the attention term of Narayanan et al. 2021,
        arXiv 2104.04473, section 5.1.
        """
        ffn = self.ffn_parameters
        if self.is_sparse(layer):
            ffn = self.experts_per_token * self.expert_parameters + self.router_parameters
        matrices = 2 * (self.attention_parameters + ffn)
        return matrices + 4 * self.query_width * sequence

    def head_flops(self) -> int:
        """Forward FLOPs of the output head for one token."""
        return 2 * self.vocab * self.width

    def train_flops_per_token(self, sequence: int | None = None) -> int:
        """FLOPs of forward and backward (three times forward) for one token."""
        length = self.sequence if sequence is None else sequence
        layers = sum(self.layer_flops(length, layer) for layer in range(self.layers))
        return 3 * (layers + self.head_flops())
