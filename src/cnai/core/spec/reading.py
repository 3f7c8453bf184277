"""A spec's bytes to YAML nodes, which know their lines; every way that a text can be no spec."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

import yaml

from cnai.core.errors import SpecError
from cnai.core.spec.dialect import Loader

SIZE_LIMIT_BYTES = 1 << 20
NODE_LIMIT = 10_000
"""Values in a spec with its aliases written out; a few lines of nested aliases make billions."""


def read_node(path: Path) -> yaml.Node | None:
    """Read a YAML or JSON file; None when it holds no value at all.

    Raises:
        SpecError: The file cannot be read, is no text, or has a syntax error.
    """
    text = _read_text(path)
    if path.suffix == ".json":
        text = _checked_json(text, path)
    return parse(text, str(path))


def parse(text: str, where: str) -> yaml.Node | None:
    """Turn YAML into nodes.

    Raises:
        SpecError: A syntax error, or a bomb of aliases.
    """
    try:
        node: yaml.Node | None = Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, where) from error
    except yaml.YAMLError as error:
        raise SpecError(
            f"not text: {str(error).splitlines()[0]}",
            where=where,
            hint="name the YAML file of the run, and save it as UTF-8",
        ) from error
    except RecursionError as error:
        raise _too_deep(where) from error
    if node is not None:
        _check_size(node, where)
    return node


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError as error:
        raise SpecError(
            f"no spec at `{path}`", where=str(path), hint=_hint_for_missing(path)
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(
            f"cannot read the spec `{path}`: {reason}",
            where=str(path),
            hint="name a YAML or JSON file that you may read",
        ) from error
    if len(content) > SIZE_LIMIT_BYTES:
        raise SpecError(
            f"`{path}` is larger than 1 MiB, which no spec is",
            where=str(path),
            hint="name the YAML file of the run, not a model or a data file",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"`{path}` is not UTF-8 text: byte {error.start} is 0x{content[error.start]:02x}",
            where=str(path),
            hint="name the YAML file of the run, and save it as UTF-8",
        ) from error


def _hint_for_missing(path: Path) -> str:
    if path == Path("-"):
        return "name a file; for standard input that is `/dev/stdin`"
    beside: Iterable[Path] = path.parent.iterdir() if path.parent.is_dir() else ()
    names = [one.name for one in beside if one.suffix in {".yaml", ".yml", ".json"}]
    match = get_close_matches(path.name, names, n=1)
    if match:
        return f"did you mean `{path.with_name(match[0])}`?"
    return f"write one with `ai-cli init {path}`"


def _checked_json(text: str, path: Path) -> str:
    """Return JSON that the YAML reader takes: outside strings a tab is only a space."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"not valid JSON: {error.msg}",
            where=f"{path}:{error.lineno}:{error.colno}",
            hint="mind quotes and commas; a comma after the last value is not allowed",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _too_deep(str(path)) from error
    return text.replace("\t", " ")


_WORDS = (
    ("quoted scalar", "a quote is never closed", "close it, or write the text without quotes"),
    ("another document", "holds two documents", "remove what follows the second `---`"),
    ("\\t", "a tab in the indentation", "indent with spaces; YAML allows no tabs"),
    (
        "block end",
        "the indentation does not fit the lines above",
        "give keys of a section one column",
    ),
    (
        "mapping values",
        "a `:` where no key can stand",
        "indent the line like its neighbours, or quote it",
    ),
)
"""What the library says (any part of it), what we say, and the repair."""


def _syntax_error(error: yaml.MarkedYAMLError, text: str, where: str) -> SpecError:
    said = f"{error.context} {error.problem}"
    plain = error.problem or "no reason given"
    words, hint = next(
        ((words, hint) for part, words, hint in _WORDS if part in said),
        (plain, "mind the indentation and the space after `:`, and quote text with `:` or `#`"),
    )
    mark = error.context_mark if "quoted scalar" in said else error.problem_mark
    if mark is None:
        return SpecError(f"not valid YAML: {words}", where=where, hint=hint)
    line = [*text.splitlines(), ""][min(mark.line, len(text.splitlines()))].strip()
    return SpecError(
        f"not valid YAML: {words}" + (f", at `{line[:60]}`" if line else ""),
        where=f"{where}:{mark.line + 1}:{mark.column + 1}",
        hint=hint,
    )


def _too_deep(where: str) -> SpecError:
    return SpecError(
        "nested too deeply, or holds a number with too many digits",
        where=where,
        hint="a spec has at most three levels; see `ai-cli init --kind full`",
    )


def _check_size(root: yaml.Node, where: str) -> None:
    """Count the nodes as if aliases were written out, without doing so."""
    waiting, count = [root], 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > NODE_LIMIT:
            raise SpecError(
                f"holds more than {NODE_LIMIT} values once its aliases are written out",
                where=where,
                hint="remove the anchors (`&`) and aliases (`*`); a spec needs none",
            )
        if isinstance(node, yaml.MappingNode):
            waiting.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
