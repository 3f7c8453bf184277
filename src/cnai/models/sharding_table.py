"""The sharding table of a user's own module: read, and held against the module.

A table is a dict that the user's function returns beside the module:

    {
        "layers": "blocks",
        "inlet": "embed",
        "outlet": ["norm", "head"],
        "heads": 4,
        "split": {
            "blocks.*.attention.query": "column",
            "blocks.*.attention.output": "row",
        },
    }

A pattern has as many dotted parts as the path it fits; `*` and `?` stand for text within one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from cnai.core.errors import SpecError
from cnai.core.module import ModuleTable, Split

KEYS = ("split", "layers", "inlet", "outlet", "heads")


def read_table(plain: object, *, name: str) -> ModuleTable:
    """Read what a user's function returned beside the module.

    Args:
        name: `package.module:function`, for messages.

    Raises:
        SpecError: It is no dict, or holds a key or a word that is unknown.
    """
    if not isinstance(plain, Mapping):
        raise _wrong(
            name,
            f"is {type(plain).__name__}, no dict",
            "return `(module, {...})`, or the module alone",
        )
    for key in plain:
        if key not in KEYS:
            match = get_close_matches(str(key), KEYS, n=1)
            raise _wrong(
                name,
                f"has an unknown key `{key}`",
                f"did you mean `{match[0]}`?" if match else f"the keys are {', '.join(KEYS)}",
            )
    heads = plain.get("heads")
    if heads is not None and (not isinstance(heads, int) or heads < 1):
        raise _wrong(name, f"has `heads` {heads!r}", "give the number of heads, or leave it out")
    layers = plain.get("layers")
    if layers is not None and not isinstance(layers, str):
        raise _wrong(name, f"has `layers` {layers!r}", "give the path of one ModuleList")
    return ModuleTable(
        split=tuple(_splits(plain.get("split") or {}, name)),
        layers=layers,
        inlet=_paths(plain.get("inlet"), "inlet", name),
        outlet=_paths(plain.get("outlet"), "outlet", name),
        heads=heads,
    )


def _splits(plain: Any, name: str) -> Iterator[tuple[str, Split]]:
    if not isinstance(plain, Mapping):
        raise _wrong(name, f"has `split` {plain!r}", "give a dict from patterns to words")
    for pattern, word in plain.items():
        if word not in tuple(Split):
            raise _wrong(
                name,
                f"says `{word}` of `{pattern}`",
                f"the words are {', '.join(Split)}",
            )
        yield str(pattern), Split(word)


def _paths(plain: object, key: str, name: str) -> tuple[str, ...]:
    if plain is None:
        return ()
    paths = [plain] if isinstance(plain, str) else plain
    if not isinstance(paths, list | tuple) or not all(isinstance(path, str) for path in paths):
        raise _wrong(name, f"has `{key}` {plain!r}", "give a path, or a list of paths")
    return tuple(paths)


def _wrong(name: str, message: str, hint: str) -> SpecError:
    return SpecError(f"the sharding table of `{name}` {message}", where="model.module", hint=hint)


def fits(pattern: str, path: str) -> bool:
    """Tell whether a pattern fits a path, part by part."""
    patterns, parts = pattern.split("."), path.split(".")
    return len(patterns) == len(parts) and all(map(fnmatchcase, parts, patterns))


def splits_of(module: nn.Module, table: ModuleTable) -> dict[str, Split]:
    """Return what becomes of each part of a module that the table names, by its path.

    Parts are modules, and parameters that a module holds itself.
    """
    paths = [path for path, _ in module.named_modules() if path]
    paths += [path for path, _ in module.named_parameters()]
    found: dict[str, Split] = {}
    for path in paths:
        word = next((word for pattern, word in table.split if fits(pattern, path)), None)
        if word is not None:
            found[path] = word
    return found


def check_table(module: nn.Module, table: ModuleTable, *, name: str) -> None:
    """Hold a table against the whole module.

    Raises:
        SpecError: A path or pattern names nothing, or what cannot be split is to be split.
    """
    modules = dict(module.named_modules())
    known = [path for path in modules if path] + [path for path, _ in module.named_parameters()]
    for path in (*table.inlet, *table.outlet, *([table.layers] if table.layers else [])):
        if path not in modules:
            raise _wrong(
                name, f"names `{path}`, which the module does not have", _near(path, known)
            )
    if table.layers and not _is_row(modules[table.layers]):
        kind = type(modules[table.layers]).__name__
        raise _wrong(
            name, f"names `{table.layers}` as layers, a {kind}", "name a ModuleList or a Sequential"
        )
    for pattern, _ in table.split:
        if not any(fits(pattern, path) for path in known):
            raise _wrong(
                name, f"has a pattern `{pattern}` that fits nothing", _near(pattern, known)
            )
    for path, word in splits_of(module, table).items():
        part = modules.get(path)
        if word in {Split.COLUMN, Split.ROW} and not isinstance(part, nn.Linear | nn.Embedding):
            kind = type(part).__name__ if part is not None else "parameter"
            raise _wrong(
                name,
                f"splits `{path}` by {word}, a {kind}",
                "only Linear and Embedding are split; write the layer with them",
            )


def _is_row(part: nn.Module) -> bool:
    numbered = [str(index) for index in range(len(list(part.children())))]
    return (
        isinstance(part, nn.ModuleList | nn.Sequential)
        and numbered != []
        and [name for name, _ in part.named_children()] == numbered
    )


def _near(path: str, known: list[str]) -> str:
    match = get_close_matches(path, known, n=1, cutoff=0.0)
    return f"the nearest path is `{match[0]}`; `*` stands for one part between dots"
