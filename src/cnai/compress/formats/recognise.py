"""Which format a model has, told by its content and never by its name."""

from __future__ import annotations

import mmap
from enum import StrEnum
from pathlib import Path

from cnai.core.errors import DataError, SpecError


class Format(StrEnum):
    """Formats that are read."""

    GRAPHDEF = "graphdef"
    SAVED_MODEL = "saved_model"
    ONNX = "onnx"
    GGUF = "gguf"
    HUGGINGFACE = "huggingface"
    RUN = "run"


READ = (
    "read are: a frozen TensorFlow graph (.pb), a SavedModel folder, an ONNX model, a GGUF file, a "
    "folder in Hugging Face layout (config.json, *.safetensors) and a run folder"
)

_HEAD = 16
_BROKEN = "no whole file of a known format"
_REFUSED = (
    (b"PK\x03\x04", 0, "a zip archive, as `torch.save` and Keras write it"),
    (b"\x89HDF\r\n\x1a\n", 0, "an HDF5 file, as Keras wrote it"),
    (b"\x80\x02", 0, "a pickle"),
    (b"\x80\x03", 0, "a pickle"),
    (b"\x80\x04", 0, "a pickle"),
    (b"TFL3", 4, "a TensorFlow Lite model"),
    (b"\x1f\x8b", 0, "a gzip archive"),
)


def recognise(source: Path) -> Format:
    """Return the format of a model file or folder.

    Raises:
        DataError: There is none, or it is damaged beyond recognition.
        SpecError: It has a format that is not read.
    """
    if not source.exists():
        raise DataError(
            f"no model at `{source}`", where=str(source), hint=f"look at the path; {READ}"
        )
    found = _of_folder(source) if source.is_dir() else _of_file(source)
    if isinstance(found, Format):
        return found
    error = DataError if found is _BROKEN else SpecError
    raise error(f"`{source.name}` is {found}, which is not read", where=str(source), hint=READ)


def _of_folder(folder: Path) -> Format | str:
    if (folder / "saved_model.pb").is_file():
        return Format.SAVED_MODEL
    if (folder / "events").is_dir():
        return Format.RUN
    if (folder / "config.json").is_file():
        return Format.HUGGINGFACE
    return "a folder without `config.json` or `saved_model.pb`"


def _of_file(file: Path) -> Format | str:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(_HEAD)
            if size < 2:
                return _BROKEN
            if head.startswith(b"GGUF"):
                return Format.GGUF
            for magic, place, name in _REFUSED:
                if head[place : place + len(magic)] == magic:
                    return name
            if _is_safetensors(head, size):
                return "a file of weights without the `config.json` beside it; give its folder"
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _of_message(content)
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"


def _is_safetensors(head: bytes, size: int) -> bool:
    return int.from_bytes(head[:8], "little") <= size - 8 and head[8:9] == b"{"


def _of_message(content: mmap.mmap) -> Format | str:
    """Tell the three protobuf formats apart by the numbers and types of their top fields."""
    fields = top_fields(content)
    if fields is None:
        return _BROKEN
    if (1, _VARINT) in fields and (7, _BYTES) in fields:
        return Format.ONNX
    if (1, _VARINT) in fields and fields <= {(1, _VARINT), (2, _BYTES)}:
        return Format.SAVED_MODEL
    if (1, _BYTES) in fields and fields <= _GRAPHDEF:
        return Format.GRAPHDEF
    return "a protobuf message of an unknown kind"


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPHDEF = {(1, _BYTES), (2, _BYTES), (3, _VARINT), (4, _BYTES), (5, _BYTES)}


def top_fields(content: mmap.mmap | bytes) -> set[tuple[int, int]] | None:
    """Return (number, wire type) of the fields of a protobuf message; None when it is none.

    Only the outermost level is walked, so that a file of gigabytes takes milliseconds.
    Source: the protocol buffers encoding, protobuf.dev/programming-guides/encoding.
    """
    found: set[tuple[int, int]] = set()
    place, end = 0, len(content)
    while place < end:
        tag = _varint(content, place)
        if tag is None:
            return None
        key, place = tag
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value = _varint(content, place)
            if value is None:
                return None
            place = value[1]
        elif kind == _BYTES:
            length = _varint(content, place)
            if length is None:
                return None
            place = length[1] + length[0]
        elif kind in {_FIXED64, _FIXED32}:
            place += 8 if kind == _FIXED64 else 4
        else:
            return None
        if number == 0 or place > end:
            return None
        found.add((number, kind))
    return found


def _varint(content: mmap.mmap | bytes, place: int) -> tuple[int, int] | None:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(content):
            return None
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
    return None
