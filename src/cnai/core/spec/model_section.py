"""The section `model` of the spec: what is trained."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import Field

from cnai.core.shape import DecoderShape
from cnai.core.spec.section import LARGEST_INT, Positive, Section

LOSSES = ("cross_entropy", "squared_error", "own")
"""What a module of the user's own may be trained on by name."""


class Model(Section):
    """The model: a decoder's shape, a Hugging Face folder, or a function that builds a module."""

    layers: Positive = 4
    """Transformer layers."""
    width: Positive = 128
    """Hidden size; must divide by `heads` unless `head_width` is given."""
    heads: Positive = 4
    """Query heads of attention."""
    kv_heads: Positive | None = None
    """Key and value heads (grouped-query attention); none = as many as `heads`."""
    ffn_width: Positive | None = None
    """Inner size of the feed-forward part; none = 8/3 of `width`, rounded up to a multiple
    of 32."""
    vocab: Annotated[int, Field(ge=257, le=LARGEST_INT)] = 4096
    """Tokens in the vocabulary, also the size of a tokenizer that is trained for the run."""
    sequence: Annotated[int, Field(ge=2, le=LARGEST_INT)] = 128
    """Tokens in a training sequence, and the longest context when serving."""
    rope_theta: Annotated[float, Field(gt=0)] = 10000.0
    """Base of the rotary position frequencies."""
    norm_eps: Annotated[float, Field(gt=0)] = 1e-5
    """Added to the mean square in RMSNorm."""
    tied_head: bool = True
    """Whether the output head shares the embedding's weight."""
    head_width: Positive | None = None
    """Size of one head of attention; none = `width` over `heads`."""
    attention_bias: bool = False
    """Whether queries, keys and values have a bias, as in Qwen2."""
    qk_norm: bool = False
    """Whether queries and keys are normed head by head, as in Qwen3."""
    experts: Annotated[int, Field(ge=0, le=LARGEST_INT)] = 0
    """Experts of a sparse layer (mixture of experts): a Qwen3-MoE with `qk_norm`, else a Mixtral;
    0 = all layers are dense."""
    experts_per_token: Positive = 2
    """Experts that each token goes through."""
    expert_width: Positive | None = None
    """Inner size of an expert; none = `ffn_width`."""
    sparse_step: Positive = 1
    """Every so many layers one has experts, the last of each such group; 1 = all have."""
    dense_layers: tuple[int, ...] = ()
    """Indices of layers that have no experts all the same."""
    normed_choice: bool = True
    """Whether the weights of the experts that a token goes through add up to 1."""
    huggingface: str | None = None
    """Folder with a Llama, Mistral, Qwen2, Qwen3, Mixtral or Qwen3-MoE model in Hugging Face
    layout to start from; it fixes the shape."""
    module: str | None = None
    """`package.module:function` that returns a torch module of your own, alone or with the sharding
    table by which it may be split and cut."""
    loss: str = "cross_entropy"
    """What a module of your own is trained on: `cross_entropy` (of its outputs against the target),
    `squared_error`, `own` (the module is given the target too and returns the loss of each row), or
    `package.module:function` from outputs and target to the loss of each row."""

    def shape(self) -> DecoderShape:
        """Return the decoder's shape with every default worked out."""
        ffn_width = self.ffn_width or 32 * math.ceil(self.width * 8 / 3 / 32)
        fills_width = self.head_width is None or self.head_width * self.heads == self.width
        return DecoderShape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads or self.heads,
            ffn_width=ffn_width,
            vocab=self.vocab,
            sequence=self.sequence,
            rope_theta=self.rope_theta,
            norm_eps=self.norm_eps,
            tied_head=self.tied_head,
            attention_bias=self.attention_bias,
            qk_norm=self.qk_norm,
            head_size=None if fills_width else self.head_width,
            **(self._experts(ffn_width) if self.experts else {}),
        )

    def _experts(self, ffn_width: int) -> dict[str, Any]:
        return {
            "experts": self.experts,
            "experts_per_token": self.experts_per_token,
            "expert_width": self.expert_width or ffn_width,
            "sparse_step": self.sparse_step,
            "dense_layers": self.dense_layers,
            "normed_choice": self.normed_choice,
        }
