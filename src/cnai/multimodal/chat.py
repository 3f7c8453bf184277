"""A conversation as one prompt for a base model, which only continues text.

    System: You are brief.

    User: Which way is north?

    Assistant:

The model writes the next line. A base model may go on to invent the user's next line; the server
ends the answer at one of `CHAT_STOP`.
"""

from __future__ import annotations

from collections.abc import Sequence

from cnai.core.errors import SpecError
from cnai.multimodal.messages import Message, Role, Text

_LABELS = {
    Role.SYSTEM: "System",
    Role.DEVELOPER: "System",
    Role.USER: "User",
    Role.ASSISTANT: "Assistant",
    Role.TOOL: "Tool",
}

CHAT_STOP = ("\nUser:", "\nSystem:", "\nAssistant:")


def prompt_of(messages: Sequence[Message]) -> str:
    """Return the prompt that ends where the assistant is to speak.

    Raises:
        SpecError: A message holds an image, sound or video.
    """
    lines = [_line(message, index) for index, message in enumerate(messages)]
    return "\n\n".join([*lines, f"{_LABELS[Role.ASSISTANT]}:"])


def _line(message: Message, index: int) -> str:
    speaker = _LABELS[message.role] + (f" ({message.name})" if message.name else "")
    texts = [
        _text(part, f"messages[{index}].content[{at}]") for at, part in enumerate(message.parts)
    ]
    return f"{speaker}: {' '.join(texts).strip()}".rstrip()


def _text(part: object, where: str) -> str:
    if isinstance(part, Text):
        return part.text
    kind = type(part).__name__.lower()
    raise SpecError(
        f"this model reads text only, and the message holds {kind}",
        where=where,
        hint=f"leave the {kind} out",
    )
