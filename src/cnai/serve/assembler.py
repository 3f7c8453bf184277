"""From tokens to text that may be shown: whole characters, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REPLACEMENT = "\ufffd"
_HELD = 3  # a UTF-8 character has at most 4 bytes, so at most 3 marks stand for an unfinished one


class Detokenizer:
    """Turns tokens into text one at a time, and holds back characters that are not whole yet.

    A token may hold a part of a UTF-8 character, and a tokenizer may decode a token differently at
    the start of a text (a leading space). So a short window of tokens is decoded with each new one
    and only what is new is taken. Replacement characters at the end are held, since later bytes
    may turn them into a real one. Source of the window: Hugging Face text-generation-inference.

    Args:
        decode: Tokens to text, with a replacement character for broken bytes.
        context: Tokens before the first one, the end of the prompt.
    """

    def __init__(self, decode: Callable[[list[int]], str], context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window = list(context)
        self._context = len(self._window)
        self._taken = len(decode(self._window)) if self._window else 0

    def push(self, token: int) -> str:
        """Add a token and return the text that is now certain."""
        self._window.append(token)
        text = self._decode(self._window)
        sure = len(text) - _held(text)
        new = text[self._taken : sure]
        self._taken = max(self._taken, sure)
        if new and sure == len(text):
            self._window = self._window[self._context :]
            self._context = len(self._window)
            self._taken = len(self._decode(self._window))
        return new


def _held(text: str) -> int:
    marks = len(text) - len(text.rstrip(_REPLACEMENT))
    return min(marks, _HELD)


class StopFinder:
    """Passes text on up to the first stop string, however it is cut into pieces.

    "First" is the one that is complete first; of two that end together the longer one counts.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = stop
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """Add text and return what can no longer belong to a stop string."""
        if not text or self.found:
            return ""
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        if ends:
            self.found = True
            self._held = ""
            return text[: min(ends)[1]]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return what was held back, since nothing more comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of the text that starts the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
