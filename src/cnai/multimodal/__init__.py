"""One message type for text, images, sound and video.

Messages of OpenAI clients go in, typed parts come out (and the way back), and for a text model
the one prompt that a conversation becomes. Media stay what the client sent, encoded bytes or an
address that nobody follows. It never opens a network connection, a codec or a device.
"""

from cnai.multimodal.chat import CHAT_STOP, prompt_of
from cnai.multimodal.messages import (
    Audio,
    Blob,
    Image,
    Link,
    Media,
    Message,
    Part,
    Role,
    Text,
    Video,
)
from cnai.multimodal.openai import from_openai, to_openai

__all__ = [
    "CHAT_STOP",
    "Audio",
    "Blob",
    "Image",
    "Link",
    "Media",
    "Message",
    "Part",
    "Role",
    "Text",
    "Video",
    "from_openai",
    "prompt_of",
    "to_openai",
]
