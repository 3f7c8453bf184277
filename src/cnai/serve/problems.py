"""Errors as OpenAI's API has them: a status, and a body that clients know how to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from cnai.core.errors import CnaiError, SpecError
from cnai.serve.generation import PromptTooLongError
from cnai.serve.rounds import UnavailableError

STATUS_KINDS = {
    400: "invalid_request_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    500: "server_error",
    503: "service_unavailable",
}


class RequestError(SpecError):
    """A request that cannot be answered, whatever its content."""

    status: ClassVar[int] = 400
    api_code: ClassVar[str | None] = None


class NotFoundError(RequestError):
    """There is no such path."""

    status = 404
    api_code = "not_found"


class ModelNotFoundError(RequestError):
    """There is no such model."""

    status = 404
    api_code = "model_not_found"


class BodyTimeoutError(RequestError):
    """The body came too slowly."""

    status = 408
    api_code = "request_timeout"


class BodyTooLargeError(RequestError):
    """The body is larger than the server reads."""

    status = 413
    api_code = "request_too_large"


class ContentTypeError(RequestError):
    """The body is not said to be JSON."""

    status = 415
    api_code = "unsupported_media_type"


def status_of(error: CnaiError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestError):
        return error.status
    if isinstance(error, SpecError):
        return 400
    return 503 if isinstance(error, UnavailableError) else 500


def headers_of(error: CnaiError) -> dict[str, str]:
    """Return the headers that go with an error."""
    if isinstance(error, UnavailableError):
        return {"Retry-After": str(error.retry_after_seconds)}
    return {}


def problem_of(error: CnaiError) -> dict[str, object]:
    """Return the error object; the hint is in the message, which is all that clients show."""
    code = None
    if isinstance(error, RequestError):
        code = error.api_code
    elif isinstance(error, PromptTooLongError):
        code = "context_length_exceeded"
    return problem(
        f"{error.message}; hint: {error.hint}",
        status=status_of(error),
        param=error.where if isinstance(error, SpecError) else None,
        code=code,
    )


def problem(
    message: str, *, status: int, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """Return an error object."""
    kind = STATUS_KINDS.get(status, STATUS_KINDS[400 if status < 500 else 500])
    return {"message": message, "type": kind, "param": param, "code": code}


def body_of(problem: Mapping[str, object]) -> bytes:
    """Return the body of an answer that is an error."""
    return msgspec.json.encode({"error": problem})
