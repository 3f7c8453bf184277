"""OpenAI's chat messages to our parts and back.

The format is that of the chat completions API, with `audio_url` and `video_url` as vLLM and SGLang
have them. Errors name the place as a path, `messages[2].content[0].image_url.url`, which a server
hands to the client as `param`.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cnai.core.errors import SpecError
from cnai.core.units import format_bytes
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

MEDIA_BYTES = 20 * 2**20
URL_CHARACTERS = 8192

_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.IGNORECASE)
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_AUDIO_FORMATS = {media_type: name for name, media_type in _AUDIO_TYPES.items()}
_DETAILS = ("auto", "low", "high")
_MESSAGE_KEYS = ("role", "content", "name")


def from_openai(
    messages: Sequence[object], *, max_media_bytes: int = MEDIA_BYTES
) -> tuple[Message, ...]:
    """Read the `messages` of a chat request.

    Args:
        messages: Dicts as they came from JSON.
        max_media_bytes: Largest file that a `data:` URL or `input_audio` may hold.

    Raises:
        SpecError: Something is missing, unknown or too large; `where` is its path.
    """
    if not messages:
        raise SpecError(
            "no messages", where="messages", hint='send at least one, of role "user" for instance'
        )
    return tuple(
        _message(message, f"messages[{index}]", max_media_bytes)
        for index, message in enumerate(messages)
    )


def _message(plain: object, where: str, limit: int) -> Message:
    fields = _object(plain, where)
    for key, value in fields.items():
        # Clients send an answer back as they got it, with `tool_calls: null` and the like.
        if key not in _MESSAGE_KEYS and value not in (None, [], {}):
            raise SpecError(
                f"`{key}` is not understood in a message",
                where=f"{where}.{key}",
                hint=_suggest(key, _MESSAGE_KEYS) or "leave it out; tools are not supported",
            )
    name = fields.get("name")
    return Message(
        role=_role(fields.get("role"), f"{where}.role"),
        parts=_parts(fields.get("content"), f"{where}.content", limit),
        name=None if name is None else _string(name, f"{where}.name"),
    )


def _role(plain: object, where: str) -> Role:
    if isinstance(plain, str) and plain in set(Role):
        return Role(plain)
    raise SpecError(
        f"`{plain}` is no role" if plain is not None else "the role is missing",
        where=where,
        hint=_suggest(plain, tuple(Role)) or f"use one of {', '.join(Role)}",
    )


def _parts(plain: object, where: str, limit: int) -> tuple[Part, ...]:
    if isinstance(plain, str):
        return (Text(_string(plain, where)),)
    if not isinstance(plain, list) or not plain:
        raise SpecError(
            f"content must be a text or a list of parts, not {_kind(plain)}",
            where=where,
            hint='write `"content": "..."`',
        )
    return tuple(_part(part, f"{where}[{index}]", limit) for index, part in enumerate(plain))


def _part(plain: object, where: str, limit: int) -> Part:
    fields = _object(plain, where)
    kind = fields.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise SpecError(
            f"`{kind}` is no type of content" if kind is not None else "the type is missing",
            where=f"{where}.type",
            hint=_suggest(kind, tuple(_READERS)) or f"use one of {', '.join(_READERS)}",
        )
    _only(fields, ("type", str(kind)), where)
    return reader(fields.get(str(kind)), f"{where}.{kind}", limit)


def _text(plain: object, where: str, _limit: int) -> Text:
    return Text(_string(plain, where))


def _image(plain: object, where: str, limit: int) -> Image:
    fields = _object(plain, where, hint='write `"image_url": {"url": "data:image/png;base64,..."}`')
    _only(fields, ("url", "detail"), where)
    detail = fields.get("detail")
    if detail is not None and detail not in _DETAILS:
        raise SpecError(
            f"`{detail}` is no detail",
            where=f"{where}.detail",
            hint=f"use one of {', '.join(_DETAILS)}, or leave it out",
        )
    return Image(_media(fields.get("url"), f"{where}.url", "image", limit), detail=detail)


def _audio(plain: object, where: str, limit: int) -> Audio:
    fields = _object(plain, where, hint='write `"input_audio": {"data": ..., "format": "wav"}`')
    _only(fields, ("data", "format"), where)
    name = fields.get("format")
    if not isinstance(name, str) or name not in _AUDIO_TYPES:
        raise SpecError(
            f"`{name}` is no format of sound" if name is not None else "the format is missing",
            where=f"{where}.format",
            hint=f"use {' or '.join(_AUDIO_TYPES)}; other formats go as an `audio_url` with a "
            "data: URL",
        )
    text = _string(fields.get("data"), f"{where}.data")
    return Audio(Blob(_base64(text, f"{where}.data", limit), _AUDIO_TYPES[name]))


def _audio_url(plain: object, where: str, limit: int) -> Audio:
    return Audio(_url_object(plain, where, "audio", limit))


def _video_url(plain: object, where: str, limit: int) -> Video:
    return Video(_url_object(plain, where, "video", limit))


_READERS: dict[str, Callable[[object, str, int], Part]] = {
    "text": _text,
    "image_url": _image,
    "input_audio": _audio,
    "audio_url": _audio_url,
    "video_url": _video_url,
}


def _url_object(plain: object, where: str, kind: str, limit: int) -> Media:
    fields = _object(plain, where, hint=f'write `"{kind}_url": {{"url": "..."}}`')
    _only(fields, ("url",), where)
    return _media(fields.get("url"), f"{where}.url", kind, limit)


def _media(plain: object, where: str, kind: str, limit: int) -> Media:
    url = _string(plain, where)
    if url[:5].lower() == "data:":
        return _data_url(url, where, kind, limit)
    if not re.match(r"https?://[^\s/]", url, re.IGNORECASE) or len(url) > URL_CHARACTERS:
        raise SpecError(
            f"`{_shown(url)}` is no usable address",
            where=where,
            hint=f"use a data:{kind}/...;base64 URL, or an http(s) address of at most "
            f"{URL_CHARACTERS} characters",
        )
    return Link(url)


def _data_url(url: str, where: str, kind: str, limit: int) -> Blob:
    head = _DATA_URL.match(url)
    if head is None:
        raise SpecError(
            f"`{_shown(url)}` is no base64 data: URL",
            where=where,
            hint=f"write data:{kind}/TYPE;base64,CONTENT",
        )
    media_type = head[1].lower()
    if not media_type.startswith(f"{kind}/"):
        raise SpecError(
            f"`{media_type}` is no {kind}",
            where=where,
            hint=f"send a data:{kind}/... URL, or use the part type that fits the content",
        )
    return Blob(_base64(url[head.end() :], where, limit), media_type)


def _base64(text: str, where: str, limit: int) -> bytes:
    # Checked before decoding, so that a large body is not held twice only to be refused.
    size = len(text) * 3 // 4 - text[-2:].count("=")
    if size > limit:
        raise SpecError(
            f"the file has {format_bytes(size)}, allowed are {format_bytes(limit)}",
            where=where,
            hint="make it smaller before sending it",
        )
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SpecError(
            f"`{_shown(text)}` is no base64: {error}",
            where=where,
            hint="encode the file with standard base64, without line breaks",
        ) from error


def to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Write messages as OpenAI's API has them; `from_openai` gives the same messages back.

    A single text becomes plain string content.
    """
    return [_plain_message(message) for message in messages]


def _plain_message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role.value}
    match message.parts:
        case (Text(text),):
            plain["content"] = text
        case parts:
            plain["content"] = [_plain_part(part) for part in parts]
    if message.name is not None:
        plain["name"] = message.name
    return plain


def _plain_part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(media, detail):
            image = {"url": _plain_url(media)} | ({} if detail is None else {"detail": detail})
            return {"type": "image_url", "image_url": image}
        case Audio(Blob(content, media_type)) if media_type in _AUDIO_FORMATS:
            data = base64.b64encode(content).decode()
            sound = {"data": data, "format": _AUDIO_FORMATS[media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case Audio(media):
            return {"type": "audio_url", "audio_url": {"url": _plain_url(media)}}
        case Video(media):
            return {"type": "video_url", "video_url": {"url": _plain_url(media)}}


def _plain_url(media: Media) -> str:
    if isinstance(media, Link):
        return media.url
    return f"data:{media.media_type};base64,{base64.b64encode(media.content).decode()}"


def _object(plain: object, where: str, *, hint: str | None = None) -> Mapping[str, Any]:
    if isinstance(plain, dict):
        return plain
    raise SpecError(
        f"expected an object, not {_kind(plain)}",
        where=where,
        hint=hint or 'write for instance `{"role": "user", "content": "..."}`',
    )


def _only(fields: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in fields:
        if key not in known:
            raise SpecError(
                f"`{key}` is not understood here",
                where=f"{where}.{key}",
                hint=_suggest(key, known) or f"known are {', '.join(known)}",
            )


def _string(plain: object, where: str) -> str:
    if not isinstance(plain, str):
        raise SpecError(f"expected a text, not {_kind(plain)}", where=where, hint="send a string")
    if not plain.isascii() and any("\ud800" <= character <= "\udfff" for character in plain):
        raise SpecError(
            "the text holds half of a surrogate pair, which is no character",
            where=where,
            hint="send valid Unicode; cut texts between characters",
        )
    return plain


def _suggest(value: object, known: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(str(value), known, n=1)
    return f"did you mean `{close[0]}`?" if close else None


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _kind(plain: object) -> str:
    names = {type(None): "nothing", dict: "an object", list: "a list", str: "a text"}
    if plain == []:
        return "an empty list"
    return names.get(type(plain), f"`{plain}`")
