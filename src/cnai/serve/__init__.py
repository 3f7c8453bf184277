"""Serves a text model over HTTP, as OpenAI's API has it.

A model folder (or a decoder with its tokenizer) goes in; a server that streams tokens, and frozen
counts of what it did, come out. It never trains or compresses, never follows an address that a
client sends, and loads torch only for the engine.
"""

from typing import TYPE_CHECKING, Any

from cnai.serve.app import create_app
from cnai.serve.generation import Engine, FinishReason, Piece, Sampling
from cnai.serve.rounds import UnavailableError
from cnai.serve.server import Server
from cnai.serve.service import TextService
from cnai.serve.stats import Outcome

if TYPE_CHECKING:
    from cnai.serve.engine import TextEngine, load_engine

__all__ = [
    "Engine",
    "FinishReason",
    "Outcome",
    "Piece",
    "Sampling",
    "Server",
    "TextEngine",
    "TextService",
    "UnavailableError",
    "create_app",
    "load_engine",
]


def __getattr__(name: str) -> Any:
    """Load torch with the engine, on first use: the HTTP part works without it."""
    if name in {"TextEngine", "load_engine"}:
        from cnai.serve import engine  # noqa: PLC0415 - importing torch takes seconds

        return getattr(engine, name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
