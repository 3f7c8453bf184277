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
        latent: Width through which latent attention squeezes keys and values, 0 = plain.
    """

    gated: bool = True
    causal: bool = True
    positions: int = 0
    shared_width: int = 0
    biased: bool = False
    latent: int = 0

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
            return DecoderShape.bias_parameters.fget(self)  # type: ignore[attr-defined, no-any-return]
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

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding of tokens and positions."""
        return (self.vocab + self.positions) * self.width
