import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import SpecError
from cnai.serve.openai import ChatRequest, CompletionRequest, read_request

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def chat(**fields):
    return read_request(ChatRequest, json.dumps(CHAT | fields).encode())


def completion(**fields):
    return read_request(CompletionRequest, json.dumps({"model": "m"} | fields).encode())


def refused(read, **fields):
    with pytest.raises(SpecError) as caught:
        read(**fields)
    return caught.value


def test_defaults_are_openais_with_our_length():
    sampling = completion(prompt="a").sampling(max_tokens=7)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (7, 1.0, 1.0)


def test_null_means_not_said():
    asked = completion(prompt=None, max_tokens=None, temperature=None, stop=None, stream=None)
    assert asked.text_or_tokens() == ""
    assert asked.sampling(max_tokens=7).max_tokens == 7


def test_zero_is_not_taken_for_not_said():
    assert completion(temperature=0).sampling(max_tokens=7).temperature == 0
    with pytest.raises(SpecError, match="max_tokens is `0`"):
        completion(max_tokens=0).sampling(max_tokens=7)


def test_the_new_name_of_max_tokens_wins():
    asked = chat(max_tokens=3, max_completion_tokens=5)
    assert asked.sampling(max_tokens=7).max_tokens == 5


@pytest.mark.parametrize(("stop", "all_stops"), [("a", ("a", "z")), (["a", "b"], ("a", "b", "z"))])
def test_stop_strings_of_the_request_come_before_those_of_the_chat(stop, all_stops):
    assert chat(stop=stop).sampling(max_tokens=1, stop=("z",)).stop == all_stops


@pytest.mark.parametrize(
    ("prompt", "read"), [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])]
)
def test_one_prompt_may_be_a_text_or_tokens_and_lie_in_a_list(prompt, read):
    assert completion(prompt=prompt).text_or_tokens() == read


@pytest.mark.parametrize("prompt", [["a", "b"], [], [[1], [2]], [1, "a"], [True], [1.5], [[]]])
def test_anything_else_is_not_one_prompt(prompt):
    with pytest.raises(SpecError, match="not one prompt") as caught:
        completion(prompt=prompt).text_or_tokens()
    assert caught.value.where == "prompt"


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2}, {"logprobs": 1}, {"logprobs": 0}, {"logprobs": True}, {"echo": True},
        {"best_of": 3}, {"suffix": "x"}, {"frequency_penalty": 0.5}, {"presence_penalty": -1},
        {"logit_bias": {"5": 1}},
    ],
)  # fmt: skip
def test_a_completion_refuses_what_cannot_be_done_by_name(fields):
    ((key, _),) = fields.items()
    error = refused(completion, **fields)
    assert error.where == key
    assert "not supported" in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 0}, {"logprobs": True}, {"top_logprobs": 3}, {"tools": [{"type": "function"}]},
        {"response_format": {"type": "json_object"}}, {"modalities": ["audio"]},
        {"tool_choice": "required"}, {"audio": {}},
    ],
)  # fmt: skip
def test_a_chat_refuses_what_cannot_be_done_by_name(fields):
    ((key, _),) = fields.items()
    assert refused(chat, **fields).where == key


def test_neutral_values_and_fields_without_effect_are_taken():
    chat(
        n=1, logprobs=False, tools=[], response_format={"type": "text"}, user="u",
        metadata={"a": "b"}, store=False, parallel_tool_calls=True, presence_penalty=0.0,
    )  # fmt: skip
    completion(n=1, echo=False, best_of=1, logit_bias={}, logprobs=None)


@pytest.mark.parametrize(
    ("fields", "where", "message", "hint"),
    [
        ({"max_token": 3}, "max_token", "`max_token`", "did you mean `max_tokens`?"),
        ({"qqq": 3}, "qqq", "`qqq`", "leave it out"),
        ({"max_tokens": "3"}, "max_tokens", "Expected `int | null`, got `str`", "JSON"),
        ({"max_tokens": 1.5}, "max_tokens", "got `float`", "JSON"),
        ({"stop": [1]}, "stop[0]", "Expected `str`", "JSON"),
        ({"stop": list("abcde")}, "stop", "5 stop strings", "some out"),
        ({"stream_options": {}}, "stream_options", "without a stream", "stream: true"),
        (
            {"stream": True, "stream_options": {"usage": True}},
            "stream_options.usage", "`usage`", "leave it out",
        ),
        ({"model": None}, "model", "got `null`", "JSON"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_a_repair(fields, where, message, hint):
    error = refused(completion, **fields)
    assert error.where == where
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b'{"model": NaN}', b"null"])
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(SpecError, match="body does not fit"):
        read_request(CompletionRequest, body)


def test_a_body_nested_too_deep_is_refused():
    body = b'{"model": "m", "metadata": ' + b'{"x":' * 5000
    with pytest.raises(SpecError):
        read_request(CompletionRequest, body)


def test_missing_messages_are_named():
    with pytest.raises(SpecError, match="`messages` is missing") as caught:
        read_request(ChatRequest, b'{"model": "m"}')
    assert caught.value.where == "messages"


@given(
    st.binary()
    | st.recursive(st.none() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_no_body_is_a_crash(body):
    with pytest.raises(SpecError):
        read_request(ChatRequest, body)
