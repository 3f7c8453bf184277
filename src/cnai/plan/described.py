"""A transformer that is only planned: shapes that the runtime's own decoder does not have."""

from __future__ import annotations

from dataclasses import dataclass

from cnai.core.shape import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShape(DecoderShape):
    """A shape read from a description: GPT-2, GPT-NeoX, BLOOM, a vision transformer.

    Attributes:
        gated: Whether the feed-forward part has a gate (three matrices) or not (two).
        causal: Whether positions see only those before them.
        positions: Learned positions, beside the vocabulary.
        shared_width: Inner size of an expert that every token goes through, 0 = none.
        biased: Whether all matrices have biases, and norms too.
        latent_weights: Weights of one layer's attention where it squeezes what it projects through
            narrow ranks (DeepSeek's latent attention), 0 = they follow from the heads.
    """

    gated: bool = True
    causal: bool = True
    positions: int = 0
    shared_width: int = 0
    biased: bool = False
    latent_weights: int = 0

    @property
    def attention_parameters(self) -> int:
        """Weights of the projections of one layer, without biases."""
        plain = 2 * self.width * (self.query_width + self.kv_width)
        return self.latent_weights or plain

    @property
    def head_parameters(self) -> int:
        """Parameters of the final norm and of an untied output head."""
        norm = self.width * (2 if self.biased else 1)
        return norm + (0 if self.tied_head else self.vocab * self.width)

    @property
    def ffn_parameters(self) -> int:
        """Weights of the feed-forward matrices of one dense layer."""
        return (3 if self.gated else 2) * self.width * self.ffn_width

    @property
    def expert_parameters(self) -> int:
        """Weights of the matrices of one expert."""
        return (3 if self.gated else 2) * self.width * self.expert_width

    @property
    def shared_parameters(self) -> int:
        """Weights of the expert that every token of a sparse layer goes through."""
        return (3 if self.gated else 2) * self.width * self.shared_width

    @property
    def bias_parameters(self) -> int:
        """Biases of one layer."""
        if not self.biased:
            return self.query_width + 2 * self.kv_width if self.attention_bias else 0
        inner = self.ffn_width * (2 if self.gated else 1)
        return self.query_width + 2 * self.kv_width + inner + 2 * self.width

    @property
    def norm_parameters(self) -> int:
        """Weights and biases of the norms of one layer."""
        own = 2 * self.width * (2 if self.biased else 1)
        return own + (2 * self.head_width if self.qk_norm else 0)

    @property
    def sparse_layer_parameters(self) -> int:
        """Parameters of one transformer layer with all its experts and the router."""
        ffn = self.experts * self.expert_parameters + self.router_parameters
        return self.layer_parameters - self.ffn_parameters + ffn + self.shared_parameters

    def layer_flops(self, sequence: int, layer: int = 0) -> int:
        """Forward FLOPs of a layer for one token, the expert that all go through among them."""
        return DecoderShape.layer_flops(self, sequence, layer) + (
            2 * self.shared_parameters if self.is_sparse(layer) else 0
        )

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding of tokens and positions."""
        return (self.vocab + self.positions) * self.width
