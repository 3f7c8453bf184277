"""The `config.json` of a Hugging Face Llama folder, to a decoder's shape and back.

No torch here: the planner reads the shape of a model of 100 B parameters on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnai.core.errors import DataError
from cnai.core.files import read_bytes
from cnai.core.records import convert, decode
from cnai.core.shape import DecoderShape

CONFIG_FILE = "config.json"
_LAYOUT = "give a folder in Hugging Face layout: config.json and *.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """The keys of `config.json` that matter here, with the defaults of transformers."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    rope_theta: float | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False


def read_config(folder: Path) -> dict[str, Any]:
    """Return `config.json` as it stands.

    Raises:
        DataError: It is missing or no JSON object.
    """
    path = folder / CONFIG_FILE
    plain: dict[str, Any] = decode(dict, read_bytes(path, hint=_LAYOUT), where=str(path))
    return plain


def shape_from_config(folder: Path) -> DecoderShape:
    """Read the shape of the model in a Hugging Face folder.

    Raises:
        DataError: The folder holds no Llama, or a Llama with an option that the decoder lacks.
    """
    return shape_of(read_config(folder), where=str(folder / CONFIG_FILE))


def shape_of(plain: dict[str, Any], *, where: str) -> DecoderShape:
    """Turn the content of a `config.json` into a shape.

    Raises:
        DataError: As in `shape_from_config`.
    """
    kind = plain.get("model_type")
    if kind != "llama":
        raise DataError(
            f"`model_type` is `{kind}`; the only architecture read today is `llama`",
            where=where,
            hint="give a Llama model, or convert the model to the Llama architecture",
        )
    config = convert(LlamaConfig, plain, where=where)
    problem = next(_problems(config), None)
    if problem is not None:
        raise DataError(
            problem,
            where=where,
            hint="give a Llama model without this option; docs/rooms/models.md says what is read",
        )
    rope = config.rope_parameters or {}
    return DecoderShape(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        ffn_width=config.intermediate_size,
        vocab=config.vocab_size,
        sequence=config.max_position_embeddings,
        rope_theta=float(rope.get("rope_theta") or config.rope_theta or 10_000.0),
        norm_eps=config.rms_norm_eps,
        tied_head=config.tie_word_embeddings,
    )


def _problems(config: LlamaConfig) -> Iterator[str]:
    """Yield what the decoder cannot do, the sizes first because the rest divides by them."""
    for key in (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
        "vocab_size", "max_position_embeddings",
    ):  # fmt: skip
        if getattr(config, key) < 1:
            yield f"`{key}` is {getattr(config, key)}; it must be at least 1"
            return
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if kv_heads is not None and (kv_heads < 1 or heads % kv_heads):
        yield f"`num_attention_heads` {heads} is no multiple of `num_key_value_heads` {kv_heads}"
    if config.hidden_size % (2 * heads):
        yield f"`hidden_size` {config.hidden_size} is no even multiple of {heads} heads"
    if config.head_dim is not None and config.head_dim * heads != config.hidden_size:
        yield f"`head_dim` {config.head_dim} x {heads} heads is not `hidden_size`; this is not read"
    if config.hidden_act not in {"silu", "swish"}:
        yield f"`hidden_act` is `{config.hidden_act}`; only `silu` is read"
    for key in ("attention_bias", "mlp_bias"):
        if getattr(config, key):
            yield f"`{key}` is true; layers with a bias are not read"
    yield from _rope_problems(config)


def _rope_problems(config: LlamaConfig) -> Iterator[str]:
    for key in ("rope_scaling", "rope_parameters"):
        rope = getattr(config, key) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            yield f"`{key}` is of type `{kind}`; only plain rotary positions are read"
        if rope.get("partial_rotary_factor", 1) != 1:
            yield f"`{key}` turns only a part of each head; this is not read"


def config_of(shape: DecoderShape, *, end_token: int | None = None) -> dict[str, Any]:
    """Return the content of a `config.json` that transformers 4 and 5 both load as this model.

    Args:
        shape: The model.
        end_token: Token that ends a text (and starts one); None when the tokenizer has none.
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "intermediate_size": shape.ffn_width,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.sequence,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "tie_word_embeddings": shape.tied_head,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": end_token,
        "eos_token_id": end_token,
        "pad_token_id": None,
        "dtype": "float32",
        "use_cache": True,
    }
