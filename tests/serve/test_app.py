"""The application without a socket: requests go in as ASGI messages."""

import json

import msgspec
import pytest
from starlette.testclient import TestClient

import servekit
from cnai.core.errors import SpecError
from cnai.serve import TextService, create_app

BODY = {"model": "tiny", "prompt": "a b"}


@pytest.fixture
def engine():
    return servekit.ScriptedEngine()


@pytest.fixture
def client(engine):
    def metrics(snapshot):
        return msgspec.json.encode(snapshot), "text/test; version=1"

    service = TextService(engine)
    app = create_app(
        service,
        chat_prompt=refusing_prompt,
        chat_stop=("\nUser:",),
        max_tokens=9,
        metrics=metrics,
        body_bytes=2000,
    )
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def refusing_prompt(messages):
    if messages == ["bad"]:
        raise SpecError("no", where="messages[0]", hint="h")
    return servekit.plain_prompt(messages)


def error_of(answer):
    return answer.json()["error"]


def counts(client):
    return client.get("/metrics").json()["requests"]


def test_a_completion_has_text_reason_and_usage(client):
    answer = client.post("/v1/completions", json=BODY).json()
    assert answer["choices"] == [
        {"index": 0, "logprobs": None, "finish_reason": "stop", "text": "one two three"}
    ]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


def test_the_length_when_a_request_does_not_say_is_the_apps(client, engine):
    client.post("/v1/completions", json=BODY)
    assert engine.asked[0].max_tokens == 9


def test_a_chat_gets_the_stops_of_the_chat_template(client, engine):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "stop": "x"}
    assert client.post("/v1/chat/completions", json=body).status_code == 200
    assert engine.asked[0].stop == ("x", "\nUser:")


def test_a_stream_ends_with_done_and_has_no_empty_texts(client, engine):
    engine.words = ("", "one ", "", "two")
    answer = client.post("/v1/completions", json=BODY | {"stream": True})
    events, last = servekit.events_of(answer.text)
    assert [event["choices"][0]["text"] for event in events] == ["one ", "two", ""]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "stop"]
    assert last == "[DONE]"
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"


def test_a_stream_with_usage_ends_with_it_and_no_choices(client):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events, _ = servekit.events_of(client.post("/v1/completions", json=BODY | options).text)
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] == 5
    assert all(event["usage"] is None for event in events[:-1])


def test_a_failure_in_a_stream_is_an_event_and_no_done(client, engine):
    engine.words = ("one ", ZeroDivisionError("secret"))
    events, last = servekit.events_of(
        client.post("/v1/completions", json=BODY | {"stream": True}).text
    )
    assert "secret" not in last
    assert json.loads(last)["error"]["type"] == "server_error"
    assert events[0]["choices"][0]["text"] == "one "


def test_a_failure_of_the_engine_is_a_500_and_the_next_request_is_answered(client, engine):
    engine.words = (ZeroDivisionError("secret"),)
    answer = client.post("/v1/completions", json=BODY)
    assert (answer.status_code, error_of(answer)["type"]) == (500, "server_error")
    assert "secret" not in answer.text
    engine.words = ("fine",)
    assert client.post("/v1/completions", json=BODY).status_code == 200
    assert counts(client)["failed"] == 1


def test_an_unknown_path_tells_those_that_there_are(client):
    assert "/v1/completions" in error_of(client.get("/"))["message"]


def test_an_unknown_model_is_a_404_with_a_suggestion(client):
    answer = client.post("/v1/completions", json=BODY | {"model": "tny"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
    assert "did you mean `tiny`?" in error_of(answer)["message"]
    assert error_of(answer)["param"] == "model"


def test_an_error_of_the_chat_template_is_a_400_with_its_place(client):
    answer = client.post("/v1/chat/completions", json={"model": "tiny", "messages": ["bad"]})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "messages[0]")


@pytest.mark.parametrize(
    ("path", "field", "param"),
    [
        ("/v1/completions", {"prompt": "a " * 60}, "prompt"),
        ("/v1/chat/completions", {"messages": [{"content": "a " * 60}]}, "messages"),
    ],
)
def test_a_prompt_too_long_blames_the_field_it_came_in(client, path, field, param):
    answer = client.post(path, json={"model": "tiny"} | field)
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)
    assert error_of(answer)["code"] == "context_length_exceeded"


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_a_413(client):
    def body(size):
        start = json.dumps(BODY).encode()
        return start + b" " * (size - len(start))

    headers = {"content-type": "application/json"}
    fits = client.post("/v1/completions", content=body(2000), headers=headers)
    large = client.post("/v1/completions", content=body(2001), headers=headers)
    assert (fits.status_code, large.status_code) == (200, 413)
    assert "2.0 KiB" in error_of(large)["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded"])
def test_a_body_that_is_not_said_to_be_json_is_a_415(client, content_type):
    headers = {"content-type": content_type}
    answer = client.post("/v1/completions", content=json.dumps(BODY), headers=headers)
    assert answer.status_code == 415


def test_json_with_a_charset_is_json(client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = client.post("/v1/completions", content=json.dumps(BODY), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("GET", "/nothing", 404), ("POST", "/healthz", 405)],
)
def test_unknown_paths_and_methods_are_errors_in_the_same_shape(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert path in error_of(answer)["message"]


def test_models_list_the_one_and_describe_it(client):
    (listed,) = client.get("/v1/models").json()["data"]
    assert (listed["id"], listed["max_model_len"]) == ("tiny", 50)
    assert client.get("/v1/models/tiny").json() == listed
    assert client.get("/v1/models/other").status_code == 404


def test_metrics_are_what_the_injected_function_makes(client):
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/test; version=1"
    assert answer.json()["model"] == "tiny"


def test_without_a_function_there_are_no_metrics(engine):
    app = create_app(TextService(engine), chat_prompt=servekit.plain_prompt)
    with TestClient(app) as client:
        assert client.get("/metrics").status_code == 404


def test_refused_requests_are_counted_apart_from_answers(client):
    client.post("/v1/completions", json=BODY)
    client.post("/v1/completions", json=BODY | {"n": 3})
    assert (counts(client)["stop"], counts(client)["invalid"]) == (1, 1)


def test_a_full_queue_is_a_503_that_says_when_to_come_again(engine):
    service = TextService(engine, active_limit=1, queue_limit=0)
    app = create_app(service, chat_prompt=servekit.plain_prompt)
    with TestClient(app) as client:
        service.drain(5)
        answer = client.post("/v1/completions", json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_health_and_readiness_part_when_the_service_drains(engine):
    service = TextService(engine)
    with TestClient(create_app(service, chat_prompt=servekit.plain_prompt)) as client:
        assert client.get("/readyz").status_code == 200
        service.drain(5)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_a_dead_engine_thread_is_unhealthy(engine):
    service = TextService(engine)
    with TestClient(create_app(service, chat_prompt=servekit.plain_prompt)) as client:
        service.close()
        assert client.get("/healthz").status_code == 500


def test_a_long_prompt_is_tokenized_beside_the_event_loop(engine):
    service = TextService(engine)
    with TestClient(create_app(service, chat_prompt=servekit.plain_prompt)) as client:
        answer = client.post("/v1/completions", json=BODY | {"prompt": "x" * 20_000})
    assert answer.json()["usage"]["prompt_tokens"] == 1
