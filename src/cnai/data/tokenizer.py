"""Text to tokens and back to bytes: byte-level BPE."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cnai.core.errors import DataError
from cnai.core.files import read_bytes

END_OF_TEXT = "<|endoftext|>"
_END_TOKENS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")
_SMALLEST_VOCAB = 257


class TextTokenizer:
    """A byte-level tokenizer that knows its document separator and the bytes of each token.

    Attributes:
        vocab: Number of tokens; every token is below it.
        end_token: Token put between documents; 0 for tokenizers trained here.
        token_bytes: UTF-8 bytes that each token stands for, shape (vocab,); special tokens have 0.
    """

    def __init__(self, tokenizer: Tokenizer, *, where: str) -> None:
        state = json.loads(tokenizer.to_str())
        _check_byte_level(state, where)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Text that spells a special token is text, not a command.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.end_token = _end_token(tokenizer, where)
        tokens = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab = max(tokens.values()) + 1
        self.token_bytes = _token_bytes(tokens, state, self.vocab)

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the tokens of each text, without any special token."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.int64) for one in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def byte_length(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the UTF-8 bytes that tokens of shape (..., T) stand for, shape (...)."""
        lengths: NDArray[np.int64] = self.token_bytes[tokens].sum(axis=-1)
        return lengths

    def to_json(self) -> bytes:
        """Return the content of a tokenizer.json."""
        text: str = self._tokenizer.to_str(pretty=True)
        return text.encode() + b"\n"


def train_tokenizer(texts: Iterable[str], vocab: int) -> TextTokenizer:
    """Train byte-level BPE on texts; the same texts always give the same tokenizer.

    A small text may not hold enough pairs to fill `vocab`; the tokenizer is smaller then.
    Source: Sennrich et al. 2016, arXiv 1508.07909; bytes as in Radford et al. 2019 (GPT-2).

    Raises:
        DataError: `vocab` has no room for the 256 bytes and the separator.
    """
    if vocab < _SMALLEST_VOCAB:
        raise DataError(
            f"a vocabulary of {vocab} has no room for 256 bytes and `{END_OF_TEXT}`",
            where="model.vocab",
            hint=f"set it to {_SMALLEST_VOCAB} or more",
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return TextTokenizer(tokenizer, where="the trained tokenizer")


def load_tokenizer(content: bytes, *, where: str) -> TextTokenizer:
    """Read the content of a tokenizer.json.

    Raises:
        DataError: It is no tokenizer, not byte-level, or has no end-of-text token.
    """
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(
            f"not a tokenizer.json: {error}",
            where=where,
            hint="name the tokenizer.json of a Hugging Face model, or leave `data.tokenizer` out",
        ) from error
    return TextTokenizer(tokenizer, where=where)


def read_tokenizer(path: Path) -> TextTokenizer:
    """Read a tokenizer.json; raises as `load_tokenizer`, and when the file is missing."""
    content = read_bytes(path, hint="name a tokenizer.json, or leave `data.tokenizer` out")
    return load_tokenizer(content, where=str(path))


def _check_byte_level(state: dict[str, object], where: str) -> None:
    if '"ByteLevel"' not in json.dumps([state["pre_tokenizer"], state["decoder"]]):
        raise DataError(
            "the tokenizer is not byte-level, so bits per byte cannot be told exactly",
            where=where,
            hint="use a byte-level BPE such as those of GPT-2, Llama 3 or Qwen",
        )


def _end_token(tokenizer: Tokenizer, where: str) -> int:
    for name in _END_TOKENS:
        token: int | None = tokenizer.token_to_id(name)
        if token is not None:
            return token
    raise DataError(
        "the tokenizer has no token for the end of a text",
        where=where,
        hint=f"add one of {', '.join(_END_TOKENS)}",
    )


def _token_bytes(tokens: dict[str, int], state: dict[str, object], vocab: int) -> NDArray[np.int64]:
    """Count bytes: in byte-level BPE each character of a token's name stands for one byte."""
    added = state["added_tokens"]
    names = {entry["content"]: entry["special"] for entry in added if isinstance(added, list)}  # type: ignore[attr-defined]
    lengths = np.zeros(vocab, dtype=np.int64)
    for name, token in tokens.items():
        if name not in names:
            lengths[token] = len(name)
        elif not names[name]:
            lengths[token] = len(name.encode())
    return lengths
