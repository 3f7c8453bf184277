"""What a conversation is made of: messages of a role, each with parts of one modality.

Media are lazy. A `Blob` holds the encoded file that the client sent, never pixels or samples; a
`Link` holds an address that this room never follows. Who decodes them decides about codecs, limits
and devices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cnai.core.errors import SpecError


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Blob:
    """An encoded file, such as the bytes of a PNG.

    Attributes:
        content: The file.
        media_type: Its type in lower case, `image/png`.
    """

    content: bytes = field(repr=False)
    media_type: str

    @property
    def size_bytes(self) -> int:
        """Size of the encoded file."""
        return len(self.content)


@dataclass(frozen=True, slots=True)
class Link:
    """An http or https address; a reference only."""

    url: str


Media = Blob | Link


@dataclass(frozen=True, slots=True)
class Text:
    """Written text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A still picture.

    Attributes:
        detail: `low`, `high` or `auto`, how closely the client wants it read; None = not said.
    """

    media: Media
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Audio:
    """Sound."""

    media: Media


@dataclass(frozen=True, slots=True)
class Video:
    """Moving pictures, with or without sound."""

    media: Media


Part = Text | Image | Audio | Video


@dataclass(frozen=True, slots=True)
class Message:
    """What one speaker says at once.

    Attributes:
        parts: At least one.
        name: Which of several speakers of the same role; None = not said.

    Raises:
        SpecError: There are no parts.
    """

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise SpecError(
                "a message without content",
                where="content",
                hint='give it a text, for instance `"content": ""`',
            )
