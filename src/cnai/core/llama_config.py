"""The `config.json` of a Hugging Face folder, to a decoder's shape and back.

Read are Llama and the models that differ from it by an option of the decoder: Mistral, Qwen2,
Qwen3, and the mixtures of experts Mixtral and Qwen3-MoE.

No torch here: the planner reads the shape of a model of 100 B parameters on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
class FamilyConfig:
    """The keys of `config.json` that matter here, with the defaults of transformers for a Llama."""

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
    sliding_window: int | None = None
    use_sliding_window: bool = True
    layer_types: list[str] | None = None
    num_experts: int = 0
    num_local_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int | None = None
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    norm_topk_prob: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """An architecture of transformers.

    Attributes:
        architecture: Its class for text generation.
        defaults: Where a key that its `config.json` leaves out means something else than in Llama.
        attention_bias: Queries, keys and values have a bias, whatever the config says.
        qk_norm: Queries and keys are normed.
        sparse: Layers have experts.
    """

    architecture: str
    defaults: dict[str, Any]
    attention_bias: bool = False
    qk_norm: bool = False
    sparse: bool = False


_QWEN = {
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "use_sliding_window": False,
    "sliding_window": 4096,
}
FAMILIES = {
    "llama": Family(architecture="LlamaForCausalLM", defaults={"use_sliding_window": False}),
    "mistral": Family(
        architecture="MistralForCausalLM",
        defaults={
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
        },
    ),
    "qwen2": Family(architecture="Qwen2ForCausalLM", defaults=_QWEN, attention_bias=True),
    "qwen3": Family(
        architecture="Qwen3ForCausalLM", defaults=_QWEN | {"head_dim": 128}, qk_norm=True
    ),
    "mixtral": Family(
        architecture="MixtralForCausalLM",
        defaults={
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        sparse=True,
    ),
    "qwen3_moe": Family(
        architecture="Qwen3MoeForCausalLM",
        defaults=_QWEN
        | {
            "num_key_value_heads": 4,
            "num_local_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "norm_topk_prob": False,
        },
        qk_norm=True,
        sparse=True,
    ),
}
"""What is read, by `model_type`."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return `config.json` as it stands.

    Raises:
        DataError: It is missing or no JSON object.
    """
    path = folder / CONFIG_FILE
    plain: dict[str, Any] = decode(dict, read_bytes(path, hint=_LAYOUT), where=str(path))
    return plain


def shape_from_config(folder: Path, *, sequence: int | None = None) -> DecoderShape:
    """Read the shape of the model in a Hugging Face folder.

    Args:
        folder: The folder.
        sequence: Longest sequence that it is used at; None = what the model was made for.

    Raises:
        DataError: The folder holds another kind of model, or an option that the decoder lacks.
    """
    return shape_of(read_config(folder), where=str(folder / CONFIG_FILE), sequence=sequence)


def shape_of(plain: dict[str, Any], *, where: str, sequence: int | None = None) -> DecoderShape:
    """Turn the content of a `config.json` into a shape.

    Raises:
        DataError: As in `shape_from_config`.
    """
    kind = plain.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise DataError(
            f"`model_type` is `{kind}`; read today are {_words(FAMILIES)}",
            where=where,
            hint="give a model of one of these, or convert it to the Llama architecture",
        )
    config = convert(FamilyConfig, family.defaults | plain, where=where)
    limit = min(sequence or config.max_position_embeddings, config.max_position_embeddings)
    problem = next(_problems(config, limit), None)
    if problem is not None:
        raise DataError(
            problem,
            where=where,
            hint="give a model without this option; docs/rooms/models.md says what is read",
        )
    rope = config.rope_parameters or {}
    heads, head_width = config.num_attention_heads, config.head_dim
    if head_width is not None and head_width * heads == config.hidden_size:
        head_width = None
    return DecoderShape(
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        ffn_width=config.intermediate_size,
        vocab=config.vocab_size,
        sequence=limit,
        rope_theta=float(rope.get("rope_theta") or config.rope_theta or 10_000.0),
        norm_eps=config.rms_norm_eps,
        tied_head=config.tie_word_embeddings,
        attention_bias=family.attention_bias,
        qk_norm=family.qk_norm,
        head_size=head_width,
        **(_experts(config) if family.sparse else {}),
    )


def _experts(config: FamilyConfig) -> dict[str, Any]:
    """Return the fields of the shape that tell of experts."""
    return {
        "experts": config.num_experts or config.num_local_experts,
        "experts_per_token": config.num_experts_per_tok,
        "expert_width": config.moe_intermediate_size or config.intermediate_size,
        "sparse_step": config.decoder_sparse_step,
        "dense_layers": tuple(config.mlp_only_layers or ()),
        "normed_choice": config.norm_topk_prob,
    }


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _problems(config: FamilyConfig, sequence: int) -> Iterator[str]:
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
    if config.head_dim is None and config.hidden_size % (2 * heads):
        yield f"`hidden_size` {config.hidden_size} is no even multiple of {heads} heads"
    if config.head_dim is not None and (config.head_dim < 2 or config.head_dim % 2):
        yield f"`head_dim` is {config.head_dim}; rotary positions need an even size"
    if config.hidden_act not in {"silu", "swish"}:
        yield f"`hidden_act` is `{config.hidden_act}`; only `silu` is read"
    if config.attention_bias:
        yield "`attention_bias` is true; a bias on the attention's output is not read"
    if config.mlp_bias:
        yield "`mlp_bias` is true; a bias in the feed-forward part is not read"
    yield from _expert_problems(config)
    yield from _window_problems(config, sequence)
    yield from _rope_problems(config)


def _expert_problems(config: FamilyConfig) -> Iterator[str]:
    experts = config.num_experts or config.num_local_experts
    if experts and not 1 <= config.num_experts_per_tok <= experts:
        yield f"`num_experts_per_tok` is {config.num_experts_per_tok}, of {experts} experts"
    if config.decoder_sparse_step < 1:
        yield f"`decoder_sparse_step` is {config.decoder_sparse_step}; it must be at least 1"


def _window_problems(config: FamilyConfig, sequence: int) -> Iterator[str]:
    """A window that no sequence outgrows changes nothing; any other is not computed."""
    window = config.sliding_window if config.use_sliding_window else None
    if config.layer_types is not None and "sliding_attention" not in config.layer_types:
        window = None
    if window is not None and window < sequence:
        yield (
            f"`sliding_window` is {window}, and the sequence is {sequence} tokens; only attention "
            f"to all tokens is computed, so `model.sequence` may be at most {window}"
        )


def _rope_problems(config: FamilyConfig) -> Iterator[str]:
    for key in ("rope_scaling", "rope_parameters"):
        rope = getattr(config, key) or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            yield f"`{key}` is of type `{kind}`; only plain rotary positions are read"
        if rope.get("partial_rotary_factor", 1) != 1:
            yield f"`{key}` turns only a part of each head; this is not read"


def family_of(shape: DecoderShape) -> str:
    """Return the `model_type` as which a shape is written; Llama where several would do.

    Raises:
        DataError: No architecture of transformers has this mix of options.
    """
    options = (shape.attention_bias, shape.qk_norm, shape.experts > 0)
    for name, family in FAMILIES.items():
        if (family.attention_bias, family.qk_norm, family.sparse) == options:
            if name == "mixtral" and not _is_mixtral(shape):
                break
            return name
    if shape.experts:
        raise DataError(
            "no architecture of transformers has this mix of experts",
            where="model.experts",
            hint="set `model.qk_norm: true` and `model.attention_bias: false`, which makes it a "
            "Qwen3-MoE",
        )
    raise DataError(
        "no architecture of transformers has biases and normed queries and keys together",
        where="model.attention_bias",
        hint="set `model.attention_bias: false`, which makes it a Qwen3",
    )


def _is_mixtral(shape: DecoderShape) -> bool:
    """Tell whether all layers are sparse, as wide as the model says, with weights that add to 1."""
    all_sparse = shape.sparse_layers == shape.layers
    return all_sparse and shape.normed_choice and shape.expert_width == shape.ffn_width


def config_of(shape: DecoderShape, *, end_token: int | None = None) -> dict[str, Any]:
    """Return the content of a `config.json` that transformers 4 and 5 both load as this model.

    Args:
        shape: The model.
        end_token: Token that ends a text (and starts one); None when the tokenizer has none.

    Raises:
        DataError: No architecture of transformers has this shape.
    """
    kind = family_of(shape)
    own: dict[str, Any] = {"attention_bias": False, "mlp_bias": False}
    if kind != "llama":
        own = {"use_sliding_window": False, "sliding_window": None}
    if shape.experts:
        own["num_experts_per_tok"] = shape.experts_per_token
    if kind == "mixtral":
        own |= {"num_local_experts": shape.experts}
    elif shape.experts:
        own |= {
            "num_experts": shape.experts,
            "moe_intermediate_size": shape.expert_width,
            "decoder_sparse_step": shape.sparse_step,
            "mlp_only_layers": list(shape.dense_layers),
            "norm_topk_prob": shape.normed_choice,
        }
    return own | {
        "architectures": [FAMILIES[kind].architecture],
        "model_type": kind,
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
        "bos_token_id": end_token,
        "eos_token_id": end_token,
        "pad_token_id": None,
        "dtype": "float32",
        "use_cache": True,
    }
