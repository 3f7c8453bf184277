"""The real openai client against the real server and a real, tiny decoder."""

import threading
from itertools import zip_longest

import openai
import pytest

import servekit
from cnai.serve import Sampling, TextEngine

PROMPT = "Return the"
GREEDY = {"model": "tiny", "temperature": 0, "max_tokens": 12}
MESSAGES = [{"role": "user", "content": "hi"}]


def connect(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def engine():
    return servekit.tiny_engine()


@pytest.fixture(scope="module")
def client(engine):
    with servekit.Running(engine) as running, connect(running.url) as client:
        yield client


def said(engine, prompt, **options):
    sampling = Sampling(max_tokens=12, temperature=0, **options)
    return "".join(piece.text for piece in engine.generate(engine.encode(prompt), sampling))


def test_a_completion_is_what_the_engine_says(client, engine):
    answer = client.completions.create(prompt=PROMPT, **GREEDY)
    assert answer.choices[0].text == said(engine, PROMPT)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens == len(engine.encode(PROMPT))


def test_tokens_are_a_prompt_too(client, engine):
    answer = client.completions.create(prompt=engine.encode(PROMPT), **GREEDY)
    assert answer.choices[0].text == said(engine, PROMPT)


def test_a_streamed_completion_is_the_same_text(client, engine):
    stream = client.completions.create(prompt=PROMPT, stream=True, **GREEDY)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == said(engine, PROMPT)
    assert chunks[-1].choices[0].finish_reason == "length"


def test_a_chat_is_what_the_engine_says_to_the_prompt(client, engine):
    answer = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    assert answer.choices[0].message.content == said(engine, "hi")
    assert answer.choices[0].message.role == "assistant"


def test_a_streamed_chat_names_the_role_first_and_ends_with_the_usage(client, engine):
    stream = client.chat.completions.create(
        messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks[:-1]]
    assert "".join(texts) == said(engine, "hi")
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 12


def test_a_stop_string_ends_the_text_before_it(client, engine):
    whole = said(engine, PROMPT)
    stop = whole[2:4]
    answer = client.completions.create(prompt=PROMPT, stop=[stop], **GREEDY)
    assert answer.choices[0].text == whole[: whole.index(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_a_seed_repeats_an_answer(client):
    asked = {"model": "tiny", "prompt": PROMPT, "seed": 5, "max_tokens": 12}
    first, second = (client.completions.create(**asked).choices[0].text for _ in range(2))
    assert first == second


def test_models_are_listed_and_retrieved(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "cnai"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": 3}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 10**9]}, "prompt"),
        ({"extra_body": {"max_token": 3}}, "max_token"),
    ],
)
def test_a_wrong_request_is_a_bad_request_with_its_param(client, fields, param):
    asked = {"model": "tiny", "prompt": PROMPT} | fields
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**asked)
    assert caught.value.param == param
    assert "hint:" in caught.value.message


def test_a_prompt_too_long_tells_the_numbers(client):
    with pytest.raises(openai.BadRequestError, match="context of 64") as caught:
        client.completions.create(model="tiny", prompt=[1] * 64)
    assert caught.value.code == "context_length_exceeded"


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="did you mean `tiny`"):
        client.completions.create(model="tinny", prompt=PROMPT)


def test_a_body_too_large_is_refused_and_the_connection_lives(client):
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(model="tiny", prompt="x" * 5_000_000)
    assert caught.value.status_code == 413
    assert client.models.list()


def test_two_streams_at_once_are_each_what_they_are_alone(client, engine):
    first = client.completions.create(prompt=PROMPT, stream=True, **GREEDY)
    second = client.completions.create(prompt="User: hi", stream=True, **GREEDY)
    pairs = list(zip_longest(first, second))
    texts = ["".join(c.choices[0].text for c in chunks if c) for chunks in zip(*pairs, strict=True)]
    assert texts == [said(engine, PROMPT), said(engine, "User: hi")]


def test_many_clients_at_once_all_get_their_own_answer(client, engine):
    prompts = [f"Return {number}" for number in range(12)]
    answers = {}

    def ask(prompt):
        answer = client.completions.create(prompt=prompt, **GREEDY)
        answers[prompt] = answer.choices[0].text

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {prompt: said(engine, prompt) for prompt in prompts}


def test_a_short_request_does_not_wait_for_a_long_one():
    engine = servekit.ScriptedEngine(("word ",), endless=True, gate=threading.Event())
    engine.gate.set()
    with (
        servekit.Running(engine, grace_seconds=0) as running,
        connect(running.url) as client,
        client.completions.create(model="tiny", prompt="a", stream=True) as long,
    ):
        next(iter(long))
        short = client.completions.create(model="tiny", prompt="b", max_tokens=1)
        assert short.choices[0].text == "word "
        assert running.service.snapshot().active == 1


def test_a_client_that_leaves_in_mid_stream_frees_its_place():
    gate = threading.Event()
    engine = servekit.ScriptedEngine(endless=True, gate=gate)
    with servekit.Running(engine, service={"active_limit": 1}) as running:
        with connect(running.url) as client:
            stream = client.completions.create(model="tiny", prompt="a", stream=True)
            next(iter(stream))
            stream.close()
        gate.set()
        assert engine.closed.wait(20)
        engine.endless = False
        with connect(running.url) as client:
            client.completions.create(model="tiny", prompt="b")
        counted = running.service.snapshot()
    assert counted.requests["cancelled"] == 1
    assert counted.requests["stop"] == 1
    assert counted.active == 0


def test_a_client_that_leaves_while_it_waits_for_a_whole_answer_frees_its_place():
    gate = threading.Event()
    engine = servekit.ScriptedEngine(endless=True, gate=gate)
    with servekit.Running(engine) as running:
        impatient = connect(running.url).with_options(timeout=0.5)
        with impatient as client, pytest.raises(openai.APITimeoutError):
            client.completions.create(model="tiny", prompt="a")
        gate.set()
        assert engine.closed.wait(20)


def test_a_full_queue_is_a_503_with_retry_after():
    gate = threading.Event()
    engine = servekit.ScriptedEngine(endless=True, gate=gate)
    service = {"active_limit": 1, "queue_limit": 0}
    with (
        servekit.Running(engine, service=service, grace_seconds=0) as running,
        connect(running.url) as client,
        client.completions.create(model="tiny", prompt="a", stream=True) as stream,
    ):
        next(iter(stream))
        with pytest.raises(openai.InternalServerError, match="queue is full") as caught:
            client.completions.create(model="tiny", prompt="b")
        gate.set()
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


def test_an_error_in_mid_stream_reaches_the_client():
    engine = servekit.ScriptedEngine(("one ", ZeroDivisionError("secret")))
    with servekit.Running(engine) as running, connect(running.url) as client:
        stream = client.completions.create(model="tiny", prompt="a", stream=True)
        assert next(iter(stream)).choices[0].text == "one "
        with pytest.raises(openai.APIError, match="the engine failed"):
            list(stream)


def test_stopping_the_server_ends_an_endless_stream_with_an_error():
    engine = servekit.ScriptedEngine(endless=True)
    running = servekit.Running(engine, grace_seconds=0)
    with running, connect(running.url) as client:
        stream = client.completions.create(model="tiny", prompt="a", stream=True)
        next(iter(stream))
        running.server.stop()
        with pytest.raises(openai.APIError, match="shut down"):
            list(stream)


def test_stopping_the_server_lets_a_running_request_finish():
    engine = servekit.ScriptedEngine(gate=threading.Event())
    running = servekit.Running(engine, grace_seconds=60)
    with running, connect(running.url) as client:
        stream = client.completions.create(model="tiny", prompt="a", stream=True)
        first = next(iter(stream))
        stopper = threading.Thread(target=running.server.stop)
        stopper.start()
        while running.service.ready:
            stopper.join(0.01)
        engine.gate.set()
        rest = "".join(chunk.choices[0].text for chunk in stream)
        stopper.join()
    assert first.choices[0].text + rest == "one two three"


def test_whole_characters_arrive_whatever_the_tokens_are():
    decoder, tokenizer = servekit.decoder(), servekit.tokenizer()
    engine = TextEngine(decoder, tokenizer, name="tiny", end_tokens=[])
    with servekit.Running(engine) as running, connect(running.url) as client:
        asked = {"model": "tiny", "prompt": "caf\u00e9 \U0001f642", "seed": 1, "max_tokens": 40}
        streamed = client.completions.create(stream=True, **asked)
        joined = "".join(chunk.choices[0].text for chunk in streamed)
        assert joined == client.completions.create(**asked).choices[0].text
