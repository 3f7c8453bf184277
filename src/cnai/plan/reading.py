"""The `config.json` of a Hugging Face model, to the shape that is planned.

More is read than can be trained: a plan needs sizes only, so options that the runtime's decoder
lacks (windows, scaled rotary positions, latent attention) are no obstacle here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cnai.core.errors import DataError
from cnai.plan.described import DescribedShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the config of a family leaves unsaid.

    Attributes:
        gated: Whether the feed-forward part has a gate.
        tied: Whether the head shares the embedding where nothing is said.
        biased: Whether all matrices and norms have biases.
        attention_bias: Whether queries, keys and values alone have them.
        qk_norm: Whether queries and keys are normed.
        learned: Whether positions are learned.
        extra: Rows of the width beside the embedding, such as a norm after it.
    """

    gated: bool = True
    tied: bool = False
    biased: bool = False
    attention_bias: bool = False
    qk_norm: bool = False
    learned: bool = False
    extra: int = 0


_PLAIN = Family()
FAMILIES = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "mixtral": _PLAIN,
    "qwen2": Family(attention_bias=True),
    "qwen2_moe": Family(attention_bias=True),
    "qwen3": Family(qk_norm=True),
    "qwen3_moe": Family(qk_norm=True),
    "deepseek_v2": _PLAIN,
    "deepseek_v3": _PLAIN,
    "gpt2": Family(gated=False, tied=True, biased=True, learned=True),
    "gpt_neox": Family(gated=False, biased=True),
    "bloom": Family(gated=False, tied=True, biased=True, extra=2),
    "vit": Family(gated=False, tied=True, biased=True),
}
"""What is read, by `model_type`."""

_NAMES = {
    "width": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "inner": ("intermediate_size", "n_inner"),
    "positions": ("max_position_embeddings", "n_positions", "seq_length"),
}


def described(
    plain: Mapping[str, Any], *, where: str, sequence: int | None = None
) -> DescribedShape:
    """Turn the content of a `config.json` into a shape on paper.

    Args:
        plain: The content.
        where: Its place, for errors.
        sequence: Tokens in a sequence; None = what the model was made for, at most 8,192.

    Raises:
        DataError: The family is not read, or a size is missing or below 1.
    """
    config = plain.get("text_config", plain) if "model_type" not in plain else plain
    kind = config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise DataError(
            f"`model_type` is `{kind}`; planned are {', '.join(FAMILIES)}",
            where=where,
            hint="give the sizes in the `model` section of the spec instead",
        )
    reader = _Reader(config, where)
    if kind == "vit":
        return _vision(reader)
    width, heads = reader.size("width"), reader.size("heads")
    positions = reader.size("positions", 2048)
    latent = _latent(reader, width, heads) if reader.maybe("kv_lora_rank") else {}
    shape: dict[str, Any] = {
        "layers": reader.size("layers"),
        "width": width,
        "heads": heads,
        "kv_heads": reader.number("num_key_value_heads", heads),
        "ffn_width": reader.size("inner", 4 * width),
        "vocab": reader.number("vocab_size"),
        "sequence": sequence or min(positions, 8192),
        "head_size": reader.maybe("head_dim"),
        "tied_head": bool(config.get("tie_word_embeddings", family.tied)),
        "gated": family.gated,
        "biased": family.biased,
        "attention_bias": family.attention_bias,
        "qk_norm": family.qk_norm,
        "positions": (positions if family.learned else 0) + family.extra,
    }
    return DescribedShape(**(shape | latent | _experts(reader)))


class _Reader:
    """Numbers of a config under the names that families give them."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where

    def maybe(self, name: str) -> int | None:
        """Return a number above 0, or None when it is absent or null."""
        value = self.config.get(name)
        if value is None or value == 0:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DataError(
                f"`{name}` is {value!r}; it must be a whole number above 0",
                where=self.where,
                hint="give a model's own config.json",
            )
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a number that has to be there, unless there is a default."""
        value = self.maybe(name) or default
        if value is None:
            raise DataError(
                f"`{name}` is missing", where=self.where, hint="give a model's own config.json"
            )
        return value

    def size(self, what: str, default: int | None = None) -> int:
        """Return a size under any of its names."""
        names = _NAMES[what]
        found = next((value for name in names if (value := self.maybe(name))), None)
        return found or self.number(names[0], default)


def _experts(reader: _Reader) -> dict[str, Any]:
    """Return the fields that tell of experts; empty = all layers are dense."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next((value for name in names if (value := reader.maybe(name))), None)
    if experts is None:
        return {}
    width = reader.maybe("moe_intermediate_size") or reader.size("inner")
    dense = range(reader.maybe("first_k_dense_replace") or 0)
    only = reader.config.get("mlp_only_layers") or ()
    shared = reader.maybe("shared_expert_intermediate_size") or width * (
        reader.maybe("n_shared_experts") or 0
    )
    return {
        "experts": experts,
        "experts_per_token": reader.number("num_experts_per_tok", 2),
        "expert_width": width,
        "shared_width": shared,
        "sparse_step": reader.number("decoder_sparse_step", 1),
        "dense_layers": (*dense, *only),
    }


def _latent(reader: _Reader, width: int, heads: int) -> dict[str, Any]:
    """Return the fields of latent attention: its weights, and the mean width of its heads.

    Scores are as wide as the plain and turned parts together, the sums as wide as the values.
    """
    plain, turned = reader.number("qk_nope_head_dim"), reader.number("qk_rope_head_dim")
    values, rank = reader.number("v_head_dim"), reader.number("kv_lora_rank")
    queries = reader.maybe("q_lora_rank")
    wide = heads * (plain + turned)
    weights = width * wide if queries is None else queries * (width + wide)
    weights += width * (rank + turned) + rank * heads * (plain + values) + heads * values * width
    norms = rank + (queries or 0)
    return {
        "head_size": (plain + turned + values) // 2,
        "kv_heads": heads,
        "latent_weights": weights + norms,
    }


def _vision(reader: _Reader) -> DescribedShape:
    """Return the shape of a vision transformer that sorts pictures into classes."""
    width, heads = reader.size("width"), reader.size("heads")
    patch = reader.number("patch_size", 16)
    rows = (reader.number("image_size", 224) // patch) ** 2 + 1
    labels = reader.config.get("id2label") or {}
    pixels = reader.number("num_channels", 3) * patch * patch
    return DescribedShape(
        layers=reader.size("layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        ffn_width=reader.size("inner", 4 * width),
        vocab=max(1, len(labels) or reader.maybe("num_labels") or 1000),
        sequence=rows,
        tied_head=True,
        gated=False,
        biased=True,
        causal=False,
        positions=rows + pixels + 2,
    )
