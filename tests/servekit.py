"""Engines and servers for the tests of serving."""

import json
import threading

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cnai.core.shape import DecoderShape
from cnai.models import Decoder
from cnai.serve import FinishReason, Piece, Server, TextEngine, TextService, create_app
from cnai.serve.generation import PromptTooLongError

CORPUS = [
    "Return the sum of the two numbers.",
    "na\u00efve caf\u00e9 \u65e5\u672c\u8a9e \U0001f642 text",
    "User: hi\n\nAssistant:",
]


def tokenizer(*, vocab=320):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def decoder(*, sequence=64, vocab=320):
    torch.manual_seed(0)
    shape = DecoderShape(
        layers=2, width=32, heads=4, kv_heads=2, ffn_width=64, vocab=vocab, sequence=sequence
    )
    return Decoder(shape)


def tiny_engine(**options):
    return TextEngine(decoder(**options), tokenizer(), name="tiny")


class ScriptedEngine:
    """Says what it was told to, one word a token; a gate may hold it after the first word."""

    def __init__(self, words=("one ", "two ", "three"), *, endless=False, gate=None, name="tiny"):
        self.name = name
        self.context_tokens = 50
        self.words = words
        self.endless = endless
        self.gate = gate
        self.closed = threading.Event()
        self.steps = []
        self.asked = []

    def encode(self, text):
        return [len(word) for word in text.split()]

    def generate(self, prompt_tokens, sampling):
        if len(prompt_tokens) >= self.context_tokens:
            raise PromptTooLongError(f"{len(prompt_tokens)} tokens", hint="shorten it")
        self.asked.append(sampling)
        return self._pieces(prompt_tokens, sampling)

    def _pieces(self, prompt, sampling):
        count = 0
        try:
            while True:
                for word in self.words:
                    count += 1
                    self.steps.append(prompt[0] if prompt else None)
                    last = count == sampling.max_tokens
                    ended = count == len(self.words) and not self.endless
                    reason = FinishReason.STOP if ended else FinishReason.LENGTH if last else None
                    if isinstance(word, Exception):
                        raise word
                    yield Piece(token=count, text=word, finish_reason=reason)
                    if reason:
                        return
                    if self.gate:
                        self.gate.wait(30)
        finally:
            self.closed.set()


def plain_prompt(messages):
    return " ".join(message["content"] for message in messages)


class Running:
    """A server around an engine, on a free port, with its service at hand."""

    def __init__(self, engine, *, service=None, grace_seconds=5.0, **options):
        self.service = TextService(engine, **(service or {}))
        app = create_app(
            self.service, **{"chat_prompt": plain_prompt, "max_tokens": 10**12, **options}
        )
        self.server = Server(app, port=0, grace_seconds=grace_seconds, drain=self.service.drain)

    def __enter__(self):
        self.url = self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop()


def events_of(text):
    """Return the JSON of each server-sent event, and the last one as it is."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(line) for line in lines[:-1]], lines[-1]
