"""`ai-cli serve`: a model folder behind HTTP, and one request to prove that it answers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cnai.compress import check_whole
from cnai.core.errors import RunError
from cnai.monitor import render_serving
from cnai.multimodal import CHAT_STOP, from_openai, prompt_of
from cnai.serve import Server, TextService, create_app, load_engine

_ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a served model said to one request."""

    model: str
    prompt: str
    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    seconds: float


def server_of(folder: Path, *, host: str, port: int, max_tokens: int) -> Server:
    """Load a model and put the OpenAI-compatible server around it; it does not listen yet.

    Raises:
        DataError: The folder holds no model that can be served.
    """
    check_whole(folder)
    service = TextService(load_engine(folder))
    app = create_app(
        service,
        chat_prompt=_chat_prompt,
        chat_stop=CHAT_STOP,
        max_tokens=max_tokens,
        metrics=render_serving,
    )
    return Server(app, host=host, port=port, drain=service.drain)


def serve_model(
    folder: Path,
    *,
    host: str,
    port: int,
    max_tokens: int,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until a signal ends it.

    Args:
        on_ready: Called with the address when requests are taken.

    Raises:
        DataError: The folder holds no model that can be served.
        RunError: The port is in use.
    """
    server = server_of(folder, host=host, port=port, max_tokens=max_tokens)
    server.run(on_ready)


def answer_once(folder: Path, prompt: str, max_tokens: int) -> Answer:
    """Serve a model on a free port, send it one completion request and stop serving.

    Raises:
        RunError: The server did not answer well.
    """
    server = server_of(folder, host="127.0.0.1", port=0, max_tokens=max_tokens)
    server.start()
    try:
        start = time.monotonic()
        body = {"model": folder.name, "prompt": prompt, "temperature": 0}
        reply = _post(server.url, "/v1/completions", body)
        seconds = time.monotonic() - start
    finally:
        server.stop()
    choice, usage = reply["choices"][0], reply["usage"]
    return Answer(
        model=folder.name,
        prompt=prompt,
        text=choice["text"],
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        finish_reason=choice["finish_reason"],
        seconds=seconds,
    )


def _chat_prompt(messages: list[dict[str, Any]]) -> str:
    return prompt_of(from_openai(messages))


def _post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_SECONDS)
    try:
        connection.request(
            "POST", path, json.dumps(body), headers={"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise RunError(
            f"the server answered {response.status}: {content[:200].decode(errors='replace')}",
            where=url + path,
            hint="serve the model with `ai-cli serve` and look at its log",
        )
    reply: dict[str, Any] = json.loads(content)
    return reply
