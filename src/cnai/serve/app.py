"""The HTTP application: OpenAI's text endpoints, health, metrics.

Handlers run in the event loop and hand each request to the service; what the working thread
brings comes back through an inbox. A client that leaves cancels its request, which frees the
engine at the next token.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cnai.core.errors import CnaiError, SpecError
from cnai.core.serving import ServeSnapshot
from cnai.core.units import format_bytes
from cnai.serve.generation import FinishReason, Piece, Sampling
from cnai.serve.openai import (
    Answer,
    ChatAnswer,
    ChatRequest,
    CompletionRequest,
    TextRequest,
    event,
    read_request,
    usage_of,
)
from cnai.serve.problems import (
    BodyTimeoutError,
    BodyTooLargeError,
    ContentTypeError,
    ModelNotFoundError,
    body_of,
    headers_of,
    problem,
    problem_of,
    status_of,
)
from cnai.serve.rounds import Delivery, Ended, Job
from cnai.serve.service import TextService

BODY_BYTES = 4 * 2**20
BODY_SECONDS = 30.0
_LONG_TEXT = 10_000  # characters; tokenizing more would hold up other requests noticeably
_PATHS = "POST /v1/completions, /v1/chat/completions; GET /v1/models, /healthz, /readyz, /metrics"
_CLIENT_LEFT = 499  # never reaches anybody

Metrics = Callable[[ServeSnapshot], tuple[bytes, str]]
R = TypeVar("R", bound=TextRequest)


def create_app(
    service: TextService,
    *,
    chat_prompt: Callable[[list[dict[str, Any]]], str],
    chat_stop: tuple[str, ...] = (),
    max_tokens: int = 32,
    metrics: Metrics | None = None,
    body_bytes: int = BODY_BYTES,
) -> Starlette:
    """Build the application; it starts the service when it starts and closes it when it ends.

    Args:
        service: Not started yet.
        chat_prompt: Turns the `messages` of a chat request, as they came, into a prompt; raises
            SpecError with the place in `where`.
        chat_stop: Strings that end a chat answer besides those of the request.
        max_tokens: Tokens generated when a request does not say.
        metrics: Turns a snapshot into the body and content type of `/metrics`; None = no such
            path.
        body_bytes: Largest body of a request.
    """
    api = _Api(service, chat_prompt, chat_stop, max_tokens, body_bytes)
    probes = _Probes(service, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await asyncio.to_thread(service.close)

    return Starlette(
        routes=[
            Route("/v1/completions", api.complete, methods=["POST"]),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
            Route("/v1/models", probes.models),
            Route("/v1/models/{name:path}", probes.model),
            Route("/healthz", probes.health),
            Route("/readyz", probes.ready),
            Route("/metrics", probes.metrics),
        ],
        exception_handlers={
            CnaiError: api.refuse,
            ClientDisconnect: _left,
            HTTPException: _http_problem,
            Exception: _bug,
        },
        lifespan=lifespan,
    )


class Inbox:
    """Carries what the working thread delivers into the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Delivery] = asyncio.Queue()

    def deliver(self, item: Delivery) -> None:
        """Put something in, from any thread."""
        # The loop is closed only after a forced exit, when nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield pieces until the request ends well, or was given up by its client.

        Raises:
            CnaiError: The request failed.
        """
        while not isinstance(item := await self._items.get(), Ended):
            yield item
        if item.error is not None:
            raise item.error


class JobStream(StreamingResponse):
    """A stream of events that gives its request up when the client leaves."""

    def __init__(self, events: AsyncIterator[bytes], job: Job) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.cancel()


class _Api:
    """The endpoints that generate text."""

    def __init__(
        self,
        service: TextService,
        chat_prompt: Callable[[list[dict[str, Any]]], str],
        chat_stop: tuple[str, ...],
        max_tokens: int,
        body_bytes: int,
    ) -> None:
        self._service = service
        self._chat_prompt = chat_prompt
        self._chat_stop = chat_stop
        self._max_tokens = max_tokens
        self._body_bytes = body_bytes

    async def complete(self, request: Request) -> Response:
        """Answer /v1/completions."""
        asked = await self._read(CompletionRequest, request)
        sampling = asked.sampling(max_tokens=self._max_tokens)
        prompt = asked.text_or_tokens()
        tokens = await self._encode(prompt) if isinstance(prompt, str) else prompt
        with _blaming("prompt"):
            return await self._generate(request, _answer(Answer, asked), tokens, sampling, asked)

    async def chat(self, request: Request) -> Response:
        """Answer /v1/chat/completions."""
        asked = await self._read(ChatRequest, request)
        sampling = asked.sampling(max_tokens=self._max_tokens, stop=self._chat_stop)
        with _blaming("messages"):
            tokens = await self._encode(self._chat_prompt(asked.messages))
            answer = _answer(ChatAnswer, asked)
            return await self._generate(request, answer, tokens, sampling, asked)

    async def refuse(self, _request: Request, error: Exception) -> Response:
        """Answer with an error that the client can act on."""
        assert isinstance(error, CnaiError)
        if isinstance(error, SpecError):
            self._service.count_invalid()
        return _json(body_of(problem_of(error)), status_of(error), headers_of(error))

    async def _read(self, kind: type[R], request: Request) -> R:
        asked = read_request(kind, await _body(request, self._body_bytes))
        _check_model(asked.model, self._service.model)
        return asked

    async def _encode(self, text: str) -> list[int]:
        if len(text) < _LONG_TEXT:
            return self._service.encode(text)
        return await asyncio.to_thread(self._service.encode, text)

    async def _generate(
        self,
        request: Request,
        answer: Answer,
        tokens: list[int],
        sampling: Sampling,
        asked: TextRequest,
    ) -> Response:
        inbox = Inbox()
        job = self._service.submit(tokens, sampling, inbox.deliver)
        if asked.stream:
            return JobStream(_events(answer, inbox, len(tokens)), job)
        async with _watched(request, job):
            pieces = [piece async for piece in inbox.pieces()]
        if not pieces or (reason := pieces[-1].finish_reason) is None:
            return Response(status_code=_CLIENT_LEFT)
        text = "".join(piece.text for piece in pieces)
        return _json(answer.whole(text, reason, usage_of(len(tokens), len(pieces))))


async def _events(answer: Answer, inbox: Inbox, prompt_tokens: int) -> AsyncIterator[bytes]:
    for opening in answer.opening():
        yield opening
    count = 0
    reason: FinishReason | None = None
    try:
        async for piece in inbox.pieces():
            count += 1
            reason = piece.finish_reason
            if piece.text:
                yield answer.delta(piece.text)
    except CnaiError as error:
        # The status is long sent; clients know an error inside the stream.
        yield event({"error": problem_of(error)})
        return
    if reason is not None:
        for closing in answer.closing(reason, usage_of(prompt_tokens, count)):
            yield closing


class _Probes:
    """The endpoints that tell about the server."""

    def __init__(self, service: TextService, metrics: Metrics | None) -> None:
        self._service = service
        self._metrics = metrics
        self._created = int(time.time())

    async def models(self, _request: Request) -> Response:
        """List the model."""
        return _json(msgspec.json.encode({"object": "list", "data": [self._model()]}))

    async def model(self, request: Request) -> Response:
        """Describe the model."""
        _check_model(request.path_params["name"], self._service.model)
        return _json(msgspec.json.encode(self._model()))

    def _model(self) -> dict[str, object]:
        return {
            "id": self._service.model,
            "object": "model",
            "created": self._created,
            "owned_by": "cnai",
            "max_model_len": self._service.context_tokens,
        }

    async def health(self, _request: Request) -> Response:
        """Tell whether the process is to be kept."""
        return _state("ok", 200) if self._service.alive else _state("the engine ended", 500)

    async def ready(self, _request: Request) -> Response:
        """Tell whether requests are taken."""
        return _state("ready", 200) if self._service.ready else _state("not ready", 503)

    async def metrics(self, _request: Request) -> Response:
        """Return the counts for Prometheus."""
        if self._metrics is None:
            raise HTTPException(404)
        body, content_type = self._metrics(self._service.snapshot())
        return Response(body, headers={"Content-Type": content_type})


def _answer(kind: type[Answer], asked: TextRequest) -> Answer:
    return kind(
        identity=uuid.uuid4().hex,
        model=asked.model,
        created=int(time.time()),
        include_usage=asked.include_usage,
    )


def _check_model(asked: str, served: str) -> None:
    if asked != served:
        close = difflib.get_close_matches(asked, [served], n=1)
        raise ModelNotFoundError(
            f"there is no model `{asked}`",
            where="model",
            hint=f"did you mean `{served}`?" if close else f"this server has `{served}`",
        )


async def _body(request: Request, limit: int) -> bytes:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        # Also keeps foreign web pages out: a browser sends this type only after asking.
        raise ContentTypeError(
            f"the content type is `{content_type}`",
            hint="send the header `Content-Type: application/json`",
        )
    body = bytearray()
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    body += chunk
                elif size > 16 * limit:
                    break  # until then the rest is read and dropped, so that the client hears us
    except TimeoutError as error:
        raise BodyTimeoutError(
            f"the body did not come within {BODY_SECONDS:.0f} s", hint="send it faster"
        ) from error
    if size > limit:
        raise BodyTooLargeError(
            f"the body is larger than {format_bytes(limit)}", hint="send a shorter prompt"
        )
    return bytes(body)


@contextlib.asynccontextmanager
async def _watched(request: Request, job: Job) -> AsyncIterator[None]:
    """Give the request up when its client leaves, or when the block is cancelled."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        job.cancel()


@contextlib.contextmanager
def _blaming(param: str) -> Iterator[None]:
    """Name the field that an error without a place is about."""
    try:
        yield
    except SpecError as error:
        error.where = error.where or param
        raise


def _state(state: str, status: int) -> Response:
    return _json(msgspec.json.encode({"status": state}), status)


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_LEFT)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}; hint: {_PATHS}"
    found = problem(message, status=error.status_code)
    return _json(body_of(found), error.status_code, dict(error.headers or {}))


async def _bug(_request: Request, _error: Exception) -> Response:
    message = "the server failed; hint: see its log"
    return _json(body_of(problem(message, status=500)), 500)
