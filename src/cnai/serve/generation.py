"""What is asked of an engine and what comes back, token by token; no torch here."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cnai.core.errors import SpecError


class FinishReason(StrEnum):
    """Why a text ended: the model or a stop string ended it, or there was no room for more."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen and when to end.

    Attributes:
        max_tokens: Most tokens to generate; the context may end the text sooner.
        temperature: 0 = always the likeliest token; above, the logits are divided by it.
        top_p: Sample only from the likeliest tokens that together have this probability. Source:
            Holtzman et al. 2020, arXiv 1904.09751.
        seed: Equal seeds give equal texts on the same machine; None = a fresh one.
        stop: The text ends before the first of these strings.

    Raises:
        SpecError: A value is out of range; `where` is its name.
    """

    max_tokens: int = 32
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.max_tokens >= 1, "max_tokens", self.max_tokens, "use a whole number from 1")
        in_range = math.isfinite(self.temperature) and 0 <= self.temperature <= 2
        _check(in_range, "temperature", self.temperature, "use a number from 0 to 2")
        _check(0 < self.top_p <= 1, "top_p", self.top_p, "use a number above 0, at most 1")
        _check(
            self.seed is None or -(2**63) <= self.seed < 2**63,
            "seed",
            self.seed,
            "use a whole number of at most 64 bits",
        )
        _check("" not in self.stop, "stop", "", "leave empty strings out")


def _check(good: bool, key: str, value: object, hint: str) -> None:
    if not good:
        raise SpecError(f"{key} is `{value}`", where=key, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one generated token adds.

    Attributes:
        token: Its id.
        text: Whole characters that are now certain; often empty, because a character or the start
            of a stop string may be under way.
        finish_reason: Set on the last piece only.
    """

    token: int
    text: str
    finish_reason: FinishReason | None = None


class PromptTooLongError(SpecError):
    """The prompt leaves no room for an answer."""


class Engine(Protocol):
    """A model that continues text. One thread uses it at a time, except for `encode`."""

    @property
    def name(self) -> str:
        """Name under which clients ask for the model."""
        ...

    @property
    def context_tokens(self) -> int:
        """Longest prompt and answer together."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; any thread may call it."""
        ...

    def generate(
        self, prompt_tokens: Sequence[int], sampling: Sampling
    ) -> Generator[Piece, None, None]:
        """Check the prompt at once, then yield one piece per token; closing it ends the work.

        Raises:
            SpecError: The prompt is empty, too long or has unknown tokens.
        """
        ...
