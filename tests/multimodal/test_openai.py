import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import SpecError
from cnai.multimodal import (
    Audio,
    Blob,
    Image,
    Link,
    Message,
    Role,
    Text,
    Video,
    from_openai,
    to_openai,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
links = st.from_regex(r"https?://[a-z0-9.]{1,20}/[a-z0-9?=&%]{0,20}", fullmatch=True).map(Link)


def media(kind):
    types = st.from_regex(rf"{kind}/[a-z0-9.+-]{{1,12}}", fullmatch=True)
    return st.builds(Blob, st.binary(), types | st.just(f"{kind}/wav")) | links


parts = st.one_of(
    st.builds(Text, texts),
    st.builds(Image, media("image"), st.sampled_from([None, "auto", "low", "high"])),
    st.builds(Audio, media("audio")),
    st.builds(Video, media("video")),
)
messages = st.builds(
    Message,
    st.sampled_from(Role),
    st.lists(parts, min_size=1, max_size=4).map(tuple),
    st.none() | texts,
)


def user(*content):
    return [{"role": "user", "content": list(content)}]


def refused(plain, **options):
    with pytest.raises(SpecError) as caught:
        from_openai(plain, **options)
    return caught.value


def place_of_error(plain):
    try:
        from_openai(plain)
    except SpecError as error:
        return error.where
    return None


@given(st.lists(messages, min_size=1, max_size=3).map(tuple))
def test_what_is_written_for_openai_reads_back_the_same(conversation):
    assert from_openai(to_openai(conversation)) == conversation


@given(texts, st.binary(), st.sampled_from(["wav", "mp3"]))
def test_a_canonical_request_reads_and_writes_back_the_same(text, content, sound):
    data = base64.b64encode(content).decode()
    plain = [
        {"role": "system", "content": text},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
                {"type": "input_audio", "input_audio": {"data": data, "format": sound}},
                {"type": "video_url", "video_url": {"url": "https://films.example/a.mp4"}},
            ],
        },
    ]
    assert to_openai(from_openai(plain)) == plain


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_wrong_content_is_a_spec_error_and_never_a_crash(content):
    place = place_of_error([{"role": "user", "content": content}])
    assert place is None or place.startswith("messages[0].content")


@given(
    st.dictionaries(
        st.sampled_from(["type", "text", "image_url", "input_audio", "video_url", "x"]),
        st.none() | st.text() | st.sampled_from(["text", "image_url", "input_audio"])
        | st.dictionaries(st.sampled_from(["url", "data", "format", "detail"]), st.text()),
    )
)  # fmt: skip
def test_any_wrong_part_is_a_spec_error_and_never_a_crash(part):
    place = place_of_error(user(part))
    assert place is None or place.startswith("messages[0].content[0]")


def test_string_content_is_one_text():
    assert from_openai([{"role": "user", "content": "hi"}]) == (Message(Role.USER, (Text("hi"),)),)


def test_a_data_url_is_decoded_and_its_type_lowered():
    url = "data:Image/PNG;base64," + base64.b64encode(b"pixels").decode()
    (message,) = from_openai(user({"type": "image_url", "image_url": {"url": url}}))
    assert message.parts == (Image(Blob(b"pixels", "image/png")),)
    assert message.parts[0].media.size_bytes == 6


def test_an_http_address_stays_a_reference():
    (message,) = from_openai(
        user({"type": "image_url", "image_url": {"url": "http://169.254.169.254/meta"}})
    )
    assert message.parts[0].media == Link("http://169.254.169.254/meta")


def test_empty_fields_of_an_answer_that_comes_back_are_passed_over():
    plain = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "tool_calls": [],
        "audio": None,
    }
    assert from_openai([plain])[0].parts == (Text("hi"),)


def test_the_bytes_of_a_blob_do_not_fill_error_messages():
    assert "secret" not in repr(Blob(b"secret", "image/png"))


@pytest.mark.parametrize("size", [9, 10, 11, 12])
def test_the_size_limit_is_exact(size):
    url = "data:video/mp4;base64," + base64.b64encode(b"x" * size).decode()
    plain = user({"type": "video_url", "video_url": {"url": url}})
    if size <= 10:
        assert from_openai(plain, max_media_bytes=10)[0].parts[0].media.size_bytes == size
    else:
        error = refused(plain, max_media_bytes=10)
        assert error.message == f"the file has {size} B, allowed are 10 B"
        assert error.where == "messages[0].content[0].video_url.url"


@pytest.mark.parametrize(
    ("plain", "where", "message", "hint"),
    [
        ([], "messages", "no messages", "at least one"),
        (["hi"], "messages[0]", "expected an object, not a text", "role"),
        ([{"content": "hi"}], "messages[0].role", "role is missing", "system, developer"),
        ([{"role": "usr", "content": ""}], "messages[0].role", "`usr`", "did you mean `user`?"),
        ([{"role": "user"}], "messages[0].content", "not nothing", "content"),
        ([{"role": "user", "content": []}], "messages[0].content", "an empty list", "content"),
        ([{"role": "user", "content": 3}], "messages[0].content", "not `3`", "content"),
        (
            [{"role": "user", "content": "", "tool_calls": [1]}],
            "messages[0].tool_calls", "`tool_calls`", "tools are not supported",
        ),
        (user("hi"), "messages[0].content[0]", "expected an object, not a text", "role"),
        (user({"text": "a"}), "messages[0].content[0].type", "type is missing", "text, image_url"),
        (
            user({"type": "text", "text": "a"}, {"type": "imageurl"}),
            "messages[0].content[1].type", "`imageurl`", "did you mean `image_url`?",
        ),
        (user({"type": "text", "text": 1}), "messages[0].content[0].text", "not `1`", "string"),
        (
            user({"type": "image_url", "image_url": "http://a.example"}),
            "messages[0].content[0].image_url", "expected an object, not a text", '{"url":',
        ),
        (
            user({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
            "messages[0].content[0].image_url.url", "`file:///etc/passwd`", "data:image",
        ),
        (
            user({"type": "image_url", "image_url": {"url": "data:text/html;base64,AAAA"}}),
            "messages[0].content[0].image_url.url", "`text/html` is no image", "data:image",
        ),
        (
            user({"type": "image_url", "image_url": {"url": "data:image/png;base64,A*=="}}),
            "messages[0].content[0].image_url.url", "no base64", "standard base64",
        ),
        (
            user({"type": "image_url", "image_url": {"url": "http://a.b", "detail": "max"}}),
            "messages[0].content[0].image_url.detail", "`max`", "auto, low, high",
        ),
        (
            user({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "flac"}}),
            "messages[0].content[0].input_audio.format", "`flac`", "audio_url",
        ),
        (
            user({"type": "video_url", "video_url": {"url": "http://a.b", "fps": 2}}),
            "messages[0].content[0].video_url.fps", "`fps`", "known are url",
        ),
        ([{"role": "user", "content": "\ud83d"}], "messages[0].content", "surrogate", "Unicode"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_the_value_and_a_repair(plain, where, message, hint):
    error = refused(plain)
    assert error.where == where
    assert message in error.message
    assert hint in error.hint
