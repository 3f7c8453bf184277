"""Where text comes from: the standard library, folders, text files, JSONL and Parquet."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cnai.core.errors import DataError
from cnai.core.files import read_bytes
from cnai.data.pydocs import prose, standard_library

BUILT_IN = ("pydocs", "pysources")
_PIECE_CHARACTERS = 4096
_LINE_END = re.compile(r"\n([ \t\r]*\n)*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text, the unit that is split between training and validation.

    Attributes:
        name: Module, file, or file with line or row; relative to the source.
    """

    name: str
    text: str


def read_documents(source: str, *, text_field: str = "text") -> Iterator[Document]:
    """Yield the documents of a source in a fixed order; empty ones are left out.

    Args:
        source: `pydocs` (docstrings and comments of Python's standard library), `pysources` (its
            whole source text), or the path of a folder (all files below it that are not hidden),
            a .jsonl, a .parquet or a text file. A text file alone is cut into pieces at line ends,
            so that there is something to hold out.
        text_field: Field or column with the text in JSONL and Parquet files; a null counts as
            empty.

    Raises:
        DataError: The source is missing, empty or not text, or a line or field is broken.
    """
    found = False
    for document in _documents(source, text_field):
        if document.text.strip():
            found = True
            yield document
    if not found:
        raise DataError(
            f"no text in `{source}`",
            where="data.source",
            hint="name a folder, .jsonl, .parquet or text file that holds text, or `pydocs`",
        )


def _documents(source: str, text_field: str) -> Iterator[Document]:
    if source in BUILT_IN:
        modules = standard_library()
        for name, text in modules:
            yield Document(name=name, text=prose(text) if source == "pydocs" else text)
        return
    path = _existing(source)
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            place = file.relative_to(path)
            if file.is_file() and not any(part.startswith(".") for part in place.parts):
                yield from _file_documents(file, place.as_posix(), text_field)
    elif path.suffix in _READERS:
        yield from _READERS[path.suffix](path, path.name, text_field)
    else:
        for number, piece in enumerate(cut(_text(path))):
            yield Document(name=f"{path.name}#{number}", text=piece)


def _existing(source: str) -> Path:
    path = Path(source).expanduser()
    if _URL.match(source):
        raise DataError(
            f"source `{source}` is not on this machine",
            where="data.source",
            hint="text is read from local or mounted files; copy or mount it. Only the packed "
            "tokens lie in the object store (`data.store`)",
        )
    if path.exists():
        return path
    names = [*BUILT_IN]
    if path.parent.is_dir():
        names += [str(path.with_name(other.name)) for other in path.parent.iterdir()]
    near = difflib.get_close_matches(source, names, n=1, cutoff=0.7)
    guess = f"did you mean `{near[0]}`? " if near else ""
    raise DataError(
        f"no source `{source}`",
        where="data.source",
        hint=f"{guess}name `pydocs`, `pysources`, a folder, or a .jsonl, .parquet or text file",
    )


def _file_documents(path: Path, name: str, text_field: str) -> Iterator[Document]:
    if path.suffix in _READERS:
        yield from _READERS[path.suffix](path, name, text_field)
    else:
        yield Document(name=name, text=_text(path))


def _text(path: Path) -> str:
    content = read_bytes(path, hint="look at the permissions of the file, or leave it out")
    try:
        text = content.decode("utf-8")
        offset = content.find(b"\0")
    except UnicodeDecodeError as error:
        text, offset = "", error.start
    if offset >= 0:
        raise DataError(
            f"`{path.name}` is not UTF-8 text: byte 0x{content[offset]:02x} at offset {offset}",
            where=str(path),
            hint="move binary files out of the folder; convert other encodings, for instance with "
            "`iconv -t utf-8`",
        )
    return text.removeprefix("\ufeff")


def cut(text: str) -> Iterator[str]:
    """Cut a text into pieces of some 4 Ki characters.

    Cuts lie at blank lines, in text without them at line ends once a piece is four times as long.
    The pieces together are the text.
    """
    start = 0
    for match in _LINE_END.finditer(text):
        length = match.end() - start
        at_blank = "\n" in match[0][1:]
        if length >= (_PIECE_CHARACTERS if at_blank else 4 * _PIECE_CHARACTERS):
            yield text[start : match.end()]
            start = match.end()
    if start < len(text):
        yield text[start:]


def _jsonl(path: Path, name: str, text_field: str) -> Iterator[Document]:
    content = read_bytes(path, hint="look at the permissions of the file")
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            text = _line_text(line, text_field, where=f"{path}:{number}")
            yield Document(name=f"{name}:{number}", text=text)


def _line_text(line: bytes, field: str, *, where: str) -> str:
    try:
        plain = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"broken JSON: {error}", where=where, hint="correct or remove the line"
        ) from error
    if not isinstance(plain, dict):
        raise DataError(
            f"the line holds {_kind(plain)}, not an object",
            where=where,
            hint=f'write each line as {{"{field}": "..."}}',
        )
    if field not in plain:
        raise _no_field("field", field, plain, where=where)
    return _checked(plain[field], field, where=where)


def _checked(value: object, field: str, *, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise DataError(
        f"field `{field}` holds {_kind(value)}, not text",
        where=where,
        hint=_choose("NAME"),
    )


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", str: "a string"}
    return "null" if value is None else names.get(type(value), "a number")


def _parquet(path: Path, name: str, text_field: str) -> Iterator[Document]:
    # Imported late: pyarrow starts a thread, which a process that never reads Parquet should not
    # have.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as file:
            kinds = {field.name: str(field.type) for field in file.schema_arrow}
            _check_column(kinds, text_field, where=str(path))
            row = 0
            for batch in file.iter_batches(batch_size=1024, columns=[text_field]):
                for value in batch.column(0).to_pylist():
                    yield Document(name=f"{name}:{row}", text=value or "")
                    row += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read Parquet file `{path.name}`: {str(error).partition(chr(10))[0]}",
            where=str(path),
            hint="the file is damaged or no Parquet file; write it again",
        ) from error


def _check_column(kinds: dict[str, str], field: str, *, where: str) -> None:
    if field not in kinds:
        raise _no_field("column", field, kinds, where=where)
    text_kinds = ("string", "large_string", "dictionary<values=string,")
    if not kinds[field].startswith(text_kinds):
        raise DataError(
            f"column `{field}` holds {kinds[field]}, not text",
            where=where,
            hint=_choose("NAME"),
        )


def _choose(field: str) -> str:
    return (
        f"choose the text with `--set data.text_field={field}`, or `--text-field {field}` of "
        "`ai-cli data import`"
    )


def _no_field(what: str, field: str, names: Iterable[str], *, where: str) -> DataError:
    known = list(names)
    near = difflib.get_close_matches(field, known, n=1, cutoff=0.5)
    best = near[0] if near else (known[0] if len(known) == 1 else "NAME")
    guess = f"did you mean `{near[0]}`? " if near else ""
    listed = ", ".join(f"`{name}`" for name in known[:10]) or "none"
    return DataError(
        f"no {what} `{field}`",
        where=where,
        hint=f"{guess}there are {listed}; {_choose(best)}",
    )


_READERS = {".jsonl": _jsonl, ".ndjson": _jsonl, ".parquet": _parquet}
