import pytest

from cnai.core.errors import RunError, SpecError
from cnai.serve import UnavailableError
from cnai.serve.generation import PromptTooLongError
from cnai.serve.problems import (
    STATUS_KINDS,
    BodyTimeoutError,
    BodyTooLargeError,
    ContentTypeError,
    ModelNotFoundError,
    headers_of,
    problem,
    problem_of,
    status_of,
)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (SpecError, 400, None),
        (PromptTooLongError, 400, "context_length_exceeded"),
        (ModelNotFoundError, 404, "model_not_found"),
        (BodyTimeoutError, 408, "request_timeout"),
        (BodyTooLargeError, 413, "request_too_large"),
        (ContentTypeError, 415, "unsupported_media_type"),
        (RunError, 500, None),
        (UnavailableError, 503, None),
    ],
)
def test_each_error_has_its_status_type_and_code(kind, status, code):
    error = kind("what", hint="repair", where="here")
    told = problem_of(error)
    assert status_of(error) == status
    assert (told["type"], told["code"]) == (STATUS_KINDS[status], code)
    assert told["message"] == "what; hint: repair"


def test_the_place_of_a_spec_error_is_the_param_and_of_others_is_kept_inside():
    assert problem_of(SpecError("m", hint="h", where="stop"))["param"] == "stop"
    assert problem_of(RunError("m", hint="h", where="/secret/path"))["param"] is None


def test_a_full_queue_says_when_to_come_again():
    error = UnavailableError("full", hint="h")
    error.retry_after_seconds = 7
    assert headers_of(error) == {"Retry-After": "7"}
    assert headers_of(RunError("m", hint="h")) == {}


@pytest.mark.parametrize(
    ("status", "kind"), [(418, "invalid_request_error"), (507, "server_error")]
)
def test_other_statuses_fall_back_to_their_class(status, kind):
    assert problem("m", status=status)["type"] == kind
