"""The engine for a decoder in plain PyTorch; the only file of this room that may import torch.

Shape suffixes as in models: B batch (always 1 here), T tokens, V vocabulary.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Generator, Sequence
from itertools import chain
from pathlib import Path

import msgspec
import torch
from tokenizers import Tokenizer
from torch import Tensor

from cnai.core.errors import DataError, RunError, SpecError
from cnai.core.files import read_bytes
from cnai.models import Decoder, KeyValueCache
from cnai.serve.assembler import Detokenizer, StopFinder
from cnai.serve.generation import FinishReason, Piece, PromptTooLongError, Sampling

END_OF_TEXT = "<|endoftext|>"
_COLD = 1e-6  # below it the division overflows, and the likeliest token has all the probability
_CONTEXT = 8  # tokens of the prompt that the first generated one is decoded with


class TextEngine:
    """Continues text with a decoder, one sequence at a time with a key-value cache of its own.

    Args:
        decoder: A whole model, on the device where it is to run.
        tokenizer: Its tokenizer.
        name: Name under which clients ask for the model.
        end_tokens: Tokens that end a text; None = the tokenizer's `<|endoftext|>`.

    Raises:
        DataError: The tokenizer has tokens that the decoder does not know.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Tokenizer,
        *,
        name: str,
        end_tokens: Collection[int] | None = None,
    ) -> None:
        self._decoder = decoder.eval()
        # A client that writes `<|endoftext|>` means these letters; it can send the token by id.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._device = next(chain(decoder.parameters(), decoder.buffers())).device
        self._vocab = decoder.shape.vocab
        self.name = name
        self.context_tokens = decoder.shape.sequence
        tokens = tokenizer.get_vocab_size()
        if tokens > self._vocab:
            raise DataError(
                f"the tokenizer has {tokens} tokens and the model {self._vocab}",
                where=name,
                hint="put the tokenizer.json with which the model was trained beside its weights",
            )
        start = tokenizer.token_to_id(END_OF_TEXT)
        known = () if start is None else (start,)
        self._end_tokens = frozenset(known if end_tokens is None else end_tokens)
        self._start_tokens = list(known)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; an empty one starts a new text."""
        return list(self._tokenizer.encode(text).ids) or self._start_tokens

    def generate(
        self, prompt_tokens: Sequence[int], sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """Check the prompt at once, then yield one piece per token; closing it ends the work.

        Greedy at temperature 0. The text ends at a stop string, an end token, `max_tokens` or the
        end of the context, whichever comes first.

        Raises:
            PromptTooLongError: The context has no room for an answer.
            SpecError: The prompt is empty or has tokens that the model does not know.
            RunError: (while iterating) The model's output is no number.
        """
        prompt = list(prompt_tokens)
        self._check(prompt)
        return self._pieces(prompt, sampling)

    def _check(self, prompt: list[int]) -> None:
        if not prompt:
            raise SpecError("the prompt is empty", hint="send at least one token")
        unknown = next((token for token in prompt if not 0 <= token < self._vocab), None)
        if unknown is not None:
            raise SpecError(
                f"the prompt has token {unknown}, and the model knows 0 to {self._vocab - 1}",
                hint="make the tokens with the model's own tokenizer, or send text",
            )
        excess = len(prompt) + 1 - self.context_tokens
        if excess > 0:
            raise PromptTooLongError(
                f"the prompt has {len(prompt)} tokens, and the model's context of "
                f"{self.context_tokens} has to hold the answer too",
                hint=f"shorten the prompt by at least {excess} token{'s' * (excess > 1)}",
            )

    def _pieces(self, prompt: list[int], sampling: Sampling) -> Generator[Piece, None, None]:
        room = min(sampling.max_tokens, self.context_tokens - len(prompt))
        detokenizer = Detokenizer(self._tokenizer.decode, prompt[-_CONTEXT:])
        finder = StopFinder(sampling.stop)
        generator = _generator(sampling.seed)
        cache = KeyValueCache()
        tokens = prompt
        for left in range(room - 1, -1, -1):
            token = choose_token(self._logits(tokens, cache), sampling, generator)
            text = "" if token in self._end_tokens else finder.push(detokenizer.push(token))
            if finder.found or token in self._end_tokens:
                reason: FinishReason | None = FinishReason.STOP
            else:
                reason = None if left else FinishReason.LENGTH
            if reason is not None:
                text += finder.finish()
            yield Piece(token=token, text=text, finish_reason=reason)
            if reason is not None:
                return
            tokens = [token]

    # Inference mode belongs to the thread, so it must not stay on over a yield: another generator,
    # or the caller, would run in it.
    @torch.inference_mode()
    def _logits(self, tokens: list[int], cache: KeyValueCache) -> Tensor:
        tokens_BT = torch.tensor([tokens], dtype=torch.long, device=self._device)
        logits_V: Tensor = self._decoder(tokens_BT, cache)[0, -1]
        return logits_V.float().cpu()


def choose_token(logits_V: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Choose the next token from the logits of the last one.

    Raises:
        RunError: The largest logit is no finite number.
    """
    top = logits_V.max()
    if not torch.isfinite(top):  # also when any logit is NaN
        raise RunError(
            f"the model's largest output is {top.item()}",
            hint="the weights are damaged or training diverged; serve another checkpoint",
        )
    if sampling.temperature < _COLD:
        return int(logits_V.argmax())
    probs_V = torch.softmax(logits_V / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        sorted_V, order_V = probs_V.sort(descending=True)
        before_V = sorted_V.cumsum(dim=-1) - sorted_V
        probs_V = probs_V.scatter(0, order_V, sorted_V.where(before_V < sampling.top_p, 0))
    return int(torch.multinomial(probs_V, 1, generator=generator))


def _generator(seed: int | None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


class _Config(msgspec.Struct):
    """What the engine reads of a Hugging Face config.json."""

    eos_token_id: int | list[int] | None = None


def load_engine(folder: Path, *, name: str | None = None) -> TextEngine:
    """Build an engine from a model folder in Hugging Face layout, plain or INT8.

    Args:
        folder: Holds config.json, safetensors and tokenizer.json.
        name: Name for clients; None = the folder's.

    Raises:
        DataError: A file is missing, broken, or does not fit the others.
    """
    # By name, because it is found at run time: what reads the weights lies with the models.
    decoder: Decoder = importlib.import_module("cnai.models").load_decoder(folder)
    return TextEngine(
        decoder,
        read_tokenizer(folder / "tokenizer.json"),
        name=name or folder.resolve().name,
        end_tokens=_end_tokens(folder / "config.json"),
    )


def read_tokenizer(file: Path) -> Tokenizer:
    """Read a tokenizer.json.

    Raises:
        DataError: It is missing or broken.
    """
    hint = "put the tokenizer.json with which the model was trained beside its weights"
    content = read_bytes(file, hint=hint)
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"not a tokenizer: {error}", where=str(file), hint=hint) from error


def _end_tokens(file: Path) -> list[int] | None:
    content = read_bytes(file, hint="give the folder of a model in Hugging Face layout")
    try:
        ids = msgspec.json.decode(content, type=_Config).eos_token_id
    except msgspec.DecodeError as error:
        raise DataError(
            f"not a model config: {error}",
            where=str(file),
            hint="the file is damaged; copy or export the model again",
        ) from error
    return [ids] if isinstance(ids, int) else ids
