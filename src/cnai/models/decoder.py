"""A decoder like Llama in plain single-device PyTorch; parallelism is applied from outside.

Shape suffixes: B batch, T tokens of the input, S tokens attended to (past and present), D width,
H query heads, G key-value heads, K head width, F feed-forward width, V vocabulary.

Layers live in a ModuleDict under their global index, so that a pipeline stage that holds layers 4
to 7 of a model names its weights exactly as the whole model does, and a checkpoint does not know
in which layout it was written. Source: Touvron et al. 2023, arXiv 2302.13971; grouped-query
attention from Ainslie et al. 2023, arXiv 2305.13245; biases of queries, keys and values as in
Qwen2 (Yang et al. 2024, arXiv 2407.10671), normed queries and keys as in Qwen3 (Yang et al. 2025,
arXiv 2505.09388). Layers with experts are in `cnai.models.experts`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody uses

from cnai.core.shape import DecoderShape
from cnai.models.documents import Documents, attend_within
from cnai.models.experts import SparseFeedForward


class RMSNorm(nn.Module):
    """Scale each vector to unit root mean square, then by a learned weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the normed vectors, in the type that the matrix products read.

        Under autocast they are cast here, once; each projection would cast its own copy and keep
        it for backward.
        """
        weight = self.weight.to(x_BTD.dtype)
        normed_BTD = F.rms_norm(x_BTD, weight.shape, weight, self.eps)
        kind = x_BTD.device.type
        if torch.is_autocast_enabled(kind):
            return normed_BTD.to(torch.get_autocast_dtype(kind))
        return normed_BTD


def rotary_table(shape: DecoderShape, length: int, device: torch.device) -> Tensor:
    """Return cosines and sines for positions 0 to `length`, shape (2, T, K).

    The frequencies are laid out in two equal halves, as Hugging Face's Llama has them. Source: Su
    et al. 2021, arXiv 2104.09864.
    """
    half = torch.arange(0, shape.head_width, 2, dtype=torch.float32, device=device)
    frequency_K = shape.rope_theta ** (-half / shape.head_width)
    angle_TK = torch.outer(torch.arange(length, dtype=torch.float32, device=device), frequency_K)
    angle_TK = torch.cat((angle_TK, angle_TK), dim=-1)
    return torch.stack((angle_TK.cos(), angle_TK.sin()))


def rotate(x_BHTK: Tensor, rotary_2TK: Tensor) -> Tensor:
    """Turn queries or keys by the angles of their positions."""
    cos_TK, sin_TK = rotary_2TK.to(x_BHTK.dtype)
    low, high = x_BHTK.chunk(2, dim=-1)
    turned_BHTK: Tensor = x_BHTK * cos_TK + torch.cat((-high, low), dim=-1) * sin_TK
    return turned_BHTK


class KeyValueCache:
    """Keys and values of the tokens seen so far, a pair of tensors a layer, shape (B, G, S, K)."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        """Tokens held."""
        return next(iter(self._layers.values()))[0].shape[2] if self._layers else 0

    def append(self, layer: int, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        """Add the tokens of one layer and return all of that layer's."""
        if layer in self._layers:
            past_k, past_v = self._layers[layer]
            k_BGTK = torch.cat((past_k, k_BGTK), dim=2)
            v_BGTK = torch.cat((past_v, v_BGTK), dim=2)
        self._layers[layer] = (k_BGTK, v_BGTK)
        return k_BGTK, v_BGTK


class Attention(nn.Module):
    """Causal grouped-query attention.

    The number of heads is read from the projections' outputs, so that the same code runs on the
    share of the heads that a tensor-parallel rank holds. Normed queries and keys share one weight
    over all heads, so a rank that holds some of the heads sees only their part of its gradient.

    Attributes:
        attend: Mixes queries, keys and values; ranks that hold parts of a sequence put another
            function here, which fetches what the others hold.
    """

    def __init__(self, shape: DecoderShape, index: int) -> None:
        super().__init__()
        bias = shape.attention_bias
        self.index = index
        self.head_width = shape.head_width
        self.attend: Attend = attend
        self.q_proj = nn.Linear(shape.width, shape.query_width, bias=bias)
        self.k_proj = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.v_proj = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.o_proj = nn.Linear(shape.query_width, shape.width, bias=False)
        self.q_norm = RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None
        self.k_norm = RMSNorm(shape.head_width, shape.norm_eps) if shape.qk_norm else None

    def forward(
        self,
        x_BTD: Tensor,
        rotary_2TK: Tensor,
        cache: KeyValueCache | None = None,
        documents: Documents | None = None,
    ) -> Tensor:
        """Mix each token with those before it, of its own document where these are told."""
        B, T, _ = x_BTD.shape
        q_BHTK = self.q_proj(x_BTD).view(B, T, -1, self.head_width).transpose(1, 2)
        k_BGTK = self.k_proj(x_BTD).view(B, T, -1, self.head_width).transpose(1, 2)
        v_BGTK = self.v_proj(x_BTD).view(B, T, -1, self.head_width).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q_BHTK, k_BGTK = self.q_norm(q_BHTK), self.k_norm(k_BGTK)
        q_BHTK, k_BGTK = rotate(q_BHTK, rotary_2TK), rotate(k_BGTK, rotary_2TK)
        past = 0
        if cache is not None:
            k_BGTK, v_BGTK = cache.append(self.index, k_BGTK, v_BGTK)
            past = k_BGTK.shape[2] - T
        mixed_BHTK = self.attend(q_BHTK, k_BGTK, v_BGTK, past, documents)
        out_BTD: Tensor = self.o_proj(mixed_BHTK.transpose(1, 2).reshape(B, T, -1))
        return out_BTD


Attend = Callable[[Tensor, Tensor, Tensor, int, Documents | None], Tensor]
"""What `attend` does, from queries, keys, values, the number of past tokens and the documents."""


def attend(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSK: Tensor,
    past: int = 0,
    documents: Documents | None = None,
) -> Tensor:
    """Attend causally; query t sees keys up to `past + t`. Returns shape (B, H, T, K).

    Args:
        documents: Of rows without past tokens; a query sees its own document alone. None = a row
            is one document.
    """
    repeat = q_BHTK.shape[1] // k_BGSK.shape[1]
    k_BHSK = k_BGSK.repeat_interleave(repeat, dim=1) if repeat > 1 else k_BGSK
    v_BHSK = v_BGSK.repeat_interleave(repeat, dim=1) if repeat > 1 else v_BGSK
    if documents is not None:
        mixed_BHTK: Tensor = attend_within(q_BHTK, k_BHSK, v_BHSK, documents)
        return mixed_BHTK
    if past == 0:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=True)
    T, S = q_BHTK.shape[2], k_BHSK.shape[2]
    mask_TS = torch.ones(T, S, dtype=torch.bool, device=q_BHTK.device).tril(past)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask_TS)


class FeedForward(nn.Module):
    """SwiGLU. Source: Shazeer 2020, arXiv 2002.05202."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.ffn_width, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.ffn_width, bias=False)
        self.down_proj = nn.Linear(shape.ffn_width, shape.width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the transformed vectors."""
        hidden_BTF = F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD)
        out_BTD: Tensor = self.down_proj(hidden_BTF)
        return out_BTD


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the residual stream."""

    def __init__(self, shape: DecoderShape, index: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.width, shape.norm_eps)
        self.attention = Attention(shape, index)
        self.ffn_norm = RMSNorm(shape.width, shape.norm_eps)
        self.ffn = SparseFeedForward(shape) if shape.is_sparse(index) else FeedForward(shape)

    def forward(
        self,
        x_BTD: Tensor,
        rotary_2TK: Tensor,
        cache: KeyValueCache | None = None,
        documents: Documents | None = None,
    ) -> Tensor:
        """Return the residual stream after this layer."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD), rotary_2TK, cache, documents)
        out_BTD: Tensor = x_BTD + self.ffn(self.ffn_norm(x_BTD))
        return out_BTD


class Decoder(nn.Module):
    """A decoder, or the part of one that a pipeline stage holds.

    Args:
        shape: Shape of the whole model.
        first_layer: First layer held.
        end_layer: One past the last layer held; None = to the end.

    The part that holds layer 0 takes tokens (B, T) and owns the embedding; any other takes the
    residual stream (B, T, D). The part that holds the last layer owns the final norm and the head
    and returns logits (B, T, V); any other returns the residual stream.

    Attributes:
        slice_index: Which slice of the sequences it gets, each as long as its inputs; 0 = the
            inputs begin at the first position.
    """

    def __init__(
        self, shape: DecoderShape, *, first_layer: int = 0, end_layer: int | None = None
    ) -> None:
        super().__init__()
        end = shape.layers if end_layer is None else end_layer
        self.shape = shape
        self.is_first = first_layer == 0
        self.is_last = end == shape.layers
        self.slice_index = 0
        if self.is_first or (self.is_last and shape.tied_head):
            self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleDict(
            {str(index): Layer(shape, index) for index in range(first_layer, end)}
        )
        if self.is_last:
            self.norm = RMSNorm(shape.width, shape.norm_eps)
            self.head = nn.Linear(shape.width, shape.vocab, bias=False)
            self.tie_head()

    def tie_head(self) -> None:
        """Let a tied head share the embedding's weight.

        Moving a module off the meta device gives each name a tensor of its own; call this then.
        """
        if self.is_last and self.shape.tied_head:
            self.head.weight = self.embedding.weight

    def forward(
        self, x: Tensor, cache: KeyValueCache | None = None, document_BT: Tensor | None = None
    ) -> Tensor:
        """Run tokens (B, T) or the residual stream (B, T, D) through the layers held.

        Args:
            document_BT: Number of each position's document, over all positions of the rows also
                where the part gets a slice of them; None = a row is one document.
        """
        T = x.shape[1]
        documents = None if document_BT is None else Documents.numbered(document_BT)
        past = cache.length if cache is not None else self.slice_index * T
        rotary_2TK = rotary_table(self.shape, past + T, x.device)[:, past:]
        x_BTD = self.embedding(x) if self.is_first else x
        for layer in self.layers.values():
            x_BTD = layer(x_BTD, rotary_2TK, cache, documents)
        return self.head(self.norm(x_BTD)) if self.is_last else x_BTD
