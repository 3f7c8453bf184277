"""One source of settings as a flat table; sources are then laid over each other.

Flat names (`train.steps`) make precedence a dict update and keep each value's place beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cnai.core.errors import SpecError
from cnai.core.spec.dialect import Loader
from cnai.core.spec.keys import BARE_SECTIONS, SECTIONS, canonical
from cnai.core.spec.reading import parse, read_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that somebody gave.

    Attributes:
        origin: Who gave it, as `config show --origin` prints it.
        where: The place for error messages, without the key; empty for a dict.
    """

    key: str
    value: Any
    origin: str
    where: str

    @property
    def place(self) -> str:
        """The place with the key."""
        return f"{self.where} {self.key}".strip()


class Layer:
    """Settings of one source, with the mistakes met while they were gathered."""

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = {}
        self.mistakes: list[SpecError] = []

    @classmethod
    def from_mapping(cls, source: Mapping[Any, Any]) -> Layer:
        """Flatten a dict."""
        layer = cls()
        for key, value in _leaves(source, ""):
            layer._add(Setting(key=key, value=value, origin="spec", where=""))
        layer._unfold_bare()
        return layer

    @classmethod
    def from_file(cls, path: Path, *, origin: str | None = None) -> Layer:
        """Read a YAML or JSON file.

        Args:
            path: The file.
            origin: None = the file with the line of each value.

        Raises:
            SpecError: The file cannot be read, has a syntax error or is no mapping.
        """
        root = read_node(path)
        layer = cls()
        if root is not None and not _is_null(root):
            if not isinstance(root, yaml.MappingNode):
                kind = "a list" if isinstance(root, yaml.SequenceNode) else "one value"
                raise SpecError(
                    f"`{path}` holds {kind}, but a spec is a mapping of keys to values",
                    where=f"{path}:{root.start_mark.line + 1}",
                    hint="write keys, for instance `train:` and below it `  steps: 200`",
                )
            layer._gather(root, "", str(path), origin)
        layer._unfold_bare()
        return layer

    @classmethod
    def from_flag(cls, text: str) -> Layer:
        """Read one `--set a.b=c`; the value is YAML.

        Raises:
            SpecError: There is no `=` or no value, or the value is no YAML.
        """
        key, _, value = (part.strip() for part in text.partition("="))
        node = parse(value, f"--set {key}") if key and value else None
        if node is None:
            raise SpecError(
                f"`--set {text}` sets nothing",
                where="--set",
                hint="write `--set KEY=VALUE`, for instance `--set train.steps=500`; none is "
                "`null`",
            )
        layer = cls()
        if isinstance(node, yaml.MappingNode):
            layer._gather(node, f"{key}.", None, "--set")
        else:
            layer._take(node, key, "--set", "--set")
        layer._unfold_bare()
        return layer

    def _gather(
        self, node: yaml.MappingNode, prefix: str, file: str | None, origin: str | None
    ) -> None:
        """Add the leaves below a mapping node."""
        seen: dict[str, str] = {}
        for key_node, value_node in node.value:
            key = prefix + str(key_node.value)
            line = f"{file}:{key_node.start_mark.line + 1}" if file else "--set"
            if key in seen:
                self.mistakes.append(_twice(key, f"{line} {key}", seen[key]))
            elif not isinstance(key_node, yaml.ScalarNode):
                self.mistakes.append(_odd_key("a list or mapping", line))
            elif "." in key_node.value:
                self.mistakes.append(_dotted(key_node.value, line))
            elif isinstance(value_node, yaml.MappingNode) and value_node.value:
                self._gather(value_node, key + ".", file, origin)
            else:
                self._take(value_node, key, origin or line, line)
            seen.setdefault(key, line)

    def _take(self, node: yaml.Node, key: str, origin: str, where: str) -> None:
        """Keep the value of a node, or the mistake in it."""
        try:
            # A loader without text: it only turns nodes into values, by the rules of the dialect.
            value = _frozen(Loader("").construct_object(node, deep=True))
        except (yaml.YAMLError, ValueError, TypeError):
            self.mistakes.append(
                SpecError(
                    f"`{key}` has the tag `{node.tag}`, which does not fit or is not known",
                    where=f"{where} {key}",
                    hint="write the plain value without a tag",
                )
            )
        else:
            self._add(Setting(key=key, value=value, origin=origin, where=where))

    def _add(self, setting: Setting) -> None:
        """Keep a setting; a section left empty says nothing."""
        empty = setting.value is None or setting.value == {}
        if not (empty and canonical(setting.key) in SECTIONS):
            self.settings[setting.key] = setting

    def _unfold_bare(self) -> None:
        """Move `data_parallel` and its kin from the top under `parallel`."""
        bare = [key for key in self.settings if key.split(".")[0] in BARE_SECTIONS]
        if bare and any(key.split(".")[0] == "parallel" for key in self.settings):
            self.mistakes.append(
                SpecError(
                    f"`{bare[0]}` stands at the top, but there is a `parallel` section too",
                    where=self.settings[bare[0]].place,
                    hint=f"move it under `parallel`, as `{canonical(bare[0])}`",
                )
            )
        self.settings = {
            canonical(key): replace(one, key=canonical(key)) for key, one in self.settings.items()
        }


def _frozen(value: Any) -> Any:
    """Make tuples of lists, and one character of a surrogate pair from JSON."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(one) for one in value)
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _leaves(source: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in source.items():
        if not isinstance(name, str):
            raise _odd_key(f"`{name!r}`", prefix.rstrip(".") or "the dict")
        if "." in name:
            raise _dotted(name, prefix.rstrip(".") or "the dict")
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _frozen(value)


def _twice(key: str, place: str, first: str) -> SpecError:
    return SpecError(
        f"key `{key}` is given twice",
        where=place,
        hint=f"keep one of the two; the first is at {first}",
    )


def _odd_key(what: str, where: str) -> SpecError:
    return SpecError(f"{what} is no key", where=where, hint="a key is a name such as `steps`")


def _dotted(name: str, where: str) -> SpecError:
    first, _, rest = name.partition(".")
    return SpecError(
        f"key `{name}` has a dot",
        where=where,
        hint=f"nest it: `{first}:` and indented below it `{rest}:`",
    )
