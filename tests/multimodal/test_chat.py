import pytest

from cnai.core.errors import SpecError
from cnai.multimodal import (
    CHAT_STOP,
    Audio,
    Blob,
    Image,
    Link,
    Message,
    Role,
    Text,
    Video,
    prompt_of,
)


def test_a_conversation_ends_where_the_assistant_is_to_speak():
    conversation = (
        Message(Role.SYSTEM, (Text("Be brief."),)),
        Message(Role.USER, (Text("Hello"), Text("there"))),
        Message(Role.ASSISTANT, (Text("Hi."),)),
        Message(Role.USER, (Text(" Bye "),), name="ada"),
    )
    assert prompt_of(conversation) == (
        "System: Be brief.\n\nUser: Hello there\n\nAssistant: Hi.\n\nUser (ada): Bye\n\nAssistant:"
    )


def test_the_stops_are_what_a_next_turn_starts_with():
    prompt = prompt_of([Message(Role.USER, (Text("a"),)), Message(Role.SYSTEM, (Text("b"),))])
    assert all(stop in "\n" + prompt for stop in CHAT_STOP)


@pytest.mark.parametrize("kind", [Image, Audio, Video])
def test_a_text_model_refuses_media_and_says_where(kind):
    message = Message(Role.USER, (Text("look"), kind(Link("http://a.example/x"))))
    with pytest.raises(SpecError, match=f"holds {kind.__name__.lower()}") as caught:
        prompt_of([Message(Role.SYSTEM, (Text("x"),)), message])
    assert caught.value.where == "messages[1].content[1]"


def test_a_message_needs_a_part():
    with pytest.raises(SpecError, match="without content"):
        Message(Role.USER, ())


def test_a_blob_shows_its_type_only():
    assert repr(Blob(b"abc", "image/png")) == "Blob(media_type='image/png')"
