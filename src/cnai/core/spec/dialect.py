"""YAML as people expect it: version 1.2 scalars.

YAML 1.1, which the library reads by itself, takes `3e-3` for text, the key `on` for true, `010`
for eight and `1:30` for ninety. Here a number is what looks like one, and only `true` and `false`
are truth values. Reader and writer use the same rules, so what is written reads back the same.
"""

from __future__ import annotations

import re

import yaml

_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(
    r"^[-+]?(?:[0-9]{1,40}|[0-9]{1,3}(?:_[0-9]{3})+|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,21})$"
)
_FLOAT = re.compile(
    r"^[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_RESOLVERS = (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
)


class Loader(yaml.SafeLoader):
    """Reads plain values only; no tag can make an object."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the library declares it so


class Dumper(yaml.SafeDumper):
    """Writes what Loader reads back the same."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the library declares it so


def _int(loader: Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    return int(text, 0) if "x" in text or "o" in text else int(text)


def _float(loader: Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Characters that YAML takes for the end of a line, so that only an escape keeps them."""


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)
for _kind in (Loader, Dumper):
    for _name, _pattern, _first in _RESOLVERS:
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _pattern, _first)
Loader.add_constructor("tag:yaml.org,2002:int", _int)
Loader.add_constructor("tag:yaml.org,2002:float", _float)
