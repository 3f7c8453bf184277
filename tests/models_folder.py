"""Small Hugging Face folders for tests."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from cnai.core.shape import DecoderShape
from cnai.models.decoder import Decoder
from cnai.models.huggingface import save_model
from models_shapes import TINY, filled

TOKENIZER = json.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True,
        },
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3},
            "merges": [["a", "b"]],
        },
    }
).encode()  # fmt: skip


def stir_parameters(model: nn.Module) -> None:
    """Add noise, so that norms are not all 1 and biases not all 0."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)


def save_folder(
    folder: Path, shape: DecoderShape = TINY, seed: int = 0, *, stir: bool = False
) -> Decoder:
    """Write a decoder with initial weights as a Hugging Face folder and return it."""
    decoder = filled(shape, seed)
    if stir:
        stir_parameters(decoder)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, shape, decoder.state_dict(), TOKENIZER)
    return decoder.eval()
