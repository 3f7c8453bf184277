"""The wire format of OpenAI's completions and chat completions: requests in, answers out.

What the engine cannot do is refused by name, never passed over in silence; fields that change
nothing about the text (`user`, `metadata` and the like) are taken and not looked at. Unknown
fields are refused, as OpenAI does, so that a typo does not go unseen.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, ClassVar, TypeVar

import msgspec

from cnai.core.errors import SpecError
from cnai.serve.generation import FinishReason, Sampling

STOP_STRINGS = 4

_FIELD = re.compile(r"field `(.+?)`")
_PATH = re.compile(r" - at `\$\.?(.*)`")


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What a stream is to hold."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TextRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What both kinds of requests have in common."""

    # Fields that are taken with these values only.
    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        "n": (None, 1),
        "frequency_penalty": (None, 0),
        "presence_penalty": (None, 0),
        "logit_bias": (None, {}),
    }

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    logit_bias: Any = None
    user: Any = None
    metadata: Any = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wanted_tokens(self) -> int | None:
        """Most tokens asked for; None = not said."""
        return self.max_tokens

    def sampling(self, *, max_tokens: int, stop: tuple[str, ...] = ()) -> Sampling:
        """Return the sampling, with a default for the length and further stop strings.

        Raises:
            SpecError: A value is out of range.
        """
        own = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        wanted = self.wanted_tokens
        return Sampling(
            max_tokens=max_tokens if wanted is None else wanted,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=own + stop,
        )

    def check(self) -> None:
        """Refuse what cannot be done.

        Raises:
            SpecError: A field asks for it; `where` is its name.
        """
        for key, neutral in self.neutral.items():
            value = getattr(self, key)
            if value not in neutral:
                shown = msgspec.json.encode(value).decode()[:40]
                raise SpecError(
                    f"{key} is `{shown}`, which is not supported",
                    where=key,
                    hint=f"leave it out, or send {msgspec.json.encode(neutral[-1]).decode()}",
                )
        if self.stream_options is not None and not self.stream:
            raise SpecError(
                "stream_options without a stream",
                where="stream_options",
                hint="send `stream: true` too, or leave stream_options out",
            )
        if isinstance(self.stop, list) and len(self.stop) > STOP_STRINGS:
            raise SpecError(
                f"{len(self.stop)} stop strings, allowed are {STOP_STRINGS}",
                where="stop",
                hint="leave some out",
            )


class CompletionRequest(TextRequest, kw_only=True, forbid_unknown_fields=True):
    """A request to /v1/completions."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        **TextRequest.neutral,
        "best_of": (None, 1),
        "echo": (None, False),
        "logprobs": (None,),
        "suffix": (None,),
    }

    prompt: str | list[Any] | None = None
    best_of: Any = None
    echo: Any = None
    logprobs: Any = None
    suffix: Any = None

    def text_or_tokens(self) -> str | list[int]:
        """Return the one prompt.

        Raises:
            SpecError: There are several, or it is neither a text nor tokens.
        """
        prompt = self.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if prompt is None or isinstance(prompt, str):
            return prompt or ""
        if prompt and all(type(token) is int for token in prompt):
            return prompt
        raise SpecError(
            f"a list of {len(prompt)} that is not one prompt",
            where="prompt",
            hint="send one text, or one list of token ids, a request",
        )


class ChatRequest(TextRequest, kw_only=True, forbid_unknown_fields=True):
    """A request to /v1/chat/completions."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        **TextRequest.neutral,
        "logprobs": (None, False),
        "top_logprobs": (None, 0),
        "tools": (None, []),
        "tool_choice": (None, "auto", "none"),
        "functions": (None, []),
        "function_call": (None, "auto", "none"),
        "response_format": (None, {"type": "text"}),
        "modalities": (None, ["text"]),
        "audio": (None,),
        "reasoning_effort": (None,),
    }

    messages: list[Any]
    max_completion_tokens: int | None = None
    logprobs: Any = None
    top_logprobs: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    reasoning_effort: Any = None
    parallel_tool_calls: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None

    @property
    def wanted_tokens(self) -> int | None:
        """Most tokens asked for, under the new name or the old; None = not said."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


R = TypeVar("R", bound=TextRequest)


def read_request(kind: type[R], body: bytes) -> R:
    """Read and check the body of a request.

    Raises:
        SpecError: It is no JSON, a field is unknown, missing or of a wrong type, or asks for what
            cannot be done; `where` is the field.
    """
    try:
        request = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(kind, str(error)) from error
    request.check()
    return request


def _refusal(kind: type[TextRequest], reason: str) -> SpecError:
    field, path = _FIELD.search(reason), _PATH.search(reason)
    if "unknown field" in reason and field:
        name = field[1]
        nested = bool(path and path[1])
        close = difflib.get_close_matches(name, () if nested else kind.__struct_fields__, n=1)
        hint = f"did you mean `{close[0]}`?" if close else "leave it out"
        where = f"{path[1]}.{name}" if path and nested else name
        return SpecError(f"`{name}` is not understood here", where=where, hint=hint)
    if field:
        return SpecError(f"`{field[1]}` is missing", where=field[1], hint="send it")
    where = path[1] if path and path[1] else ""
    return SpecError(
        f"the body does not fit: {_PATH.sub('', reason)}",
        where=where or None,
        hint="send a JSON object as in OpenAI's API",
    )


class Usage(msgspec.Struct, kw_only=True):
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def usage_of(prompt_tokens: int, completion_tokens: int) -> Usage:
    """Return the usage with its sum."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )


class Answer:
    """Writes the answer to one completion, whole or as a stream.

    Args:
        identity: Random part of the answer's id.
        created: Seconds since the epoch.
        include_usage: Whether the stream ends with the usage; then each chunk has a null one.
    """

    prefix = "cmpl"
    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, *, identity: str, model: str, created: int, include_usage: bool) -> None:
        self._head = {"id": f"{self.prefix}-{identity}", "created": created, "model": model}
        self._include_usage = include_usage

    def whole(self, text: str, reason: FinishReason, usage: Usage) -> bytes:
        """Return the body of an answer that comes at once."""
        choice = self._choice(reason, **self._text(text))
        return msgspec.json.encode(
            {**self._head, "object": self.kind, "choices": [choice], "usage": usage}
        )

    def opening(self) -> list[bytes]:
        """Return the events before the first text."""
        return []

    def delta(self, text: str) -> bytes:
        """Return the event for more text."""
        return self._chunk([self._choice(None, **self._delta(text))])

    def closing(self, reason: FinishReason, usage: Usage) -> list[bytes]:
        """Return the events after the last text."""
        events = [self._chunk([self._choice(reason, **self._last())])]
        if self._include_usage:
            events.append(self._chunk([], usage))
        return [*events, b"data: [DONE]\n\n"]

    def _choice(self, reason: FinishReason | None, **content: object) -> dict[str, object]:
        return {"index": 0, "logprobs": None, "finish_reason": reason, **content}

    def _chunk(self, choices: list[dict[str, object]], usage: Usage | None = None) -> bytes:
        chunk = {**self._head, "object": self.chunk_kind, "choices": choices}
        if self._include_usage:
            chunk["usage"] = usage
        return event(chunk)

    def _text(self, text: str) -> dict[str, object]:
        return {"text": text}

    def _delta(self, text: str) -> dict[str, object]:
        return {"text": text}

    def _last(self) -> dict[str, object]:
        return {"text": ""}


class ChatAnswer(Answer):
    """Writes the answer to one chat completion."""

    prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self) -> list[bytes]:
        """Return the event that names the role."""
        return [self._chunk([self._choice(None, delta={"role": "assistant", "content": ""})])]

    def _text(self, text: str) -> dict[str, object]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _delta(self, text: str) -> dict[str, object]:
        return {"delta": {"content": text}}

    def _last(self) -> dict[str, object]:
        return {"delta": {}}


def event(content: object) -> bytes:
    """Return a server-sent event."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
