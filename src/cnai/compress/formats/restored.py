"""Finds which variable of a SavedModel is restored from which entry of its checkpoint.

The graph itself says it: RestoreV2 names the entries and assignments give them to variables, at the
top of the graph (TensorFlow 1) or in the function that restores (TensorFlow 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cnai.compress.formats.graph_scope import Scope, attribute
from cnai.compress.formats.tensor_bundle import Bounds

VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}
_ASSIGN = {"Assign", "AssignVariableOp"}
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a checkpoint, or a part of it.

    Attributes:
        bounds: The part; None = all of it.
    """

    key: str
    bounds: Bounds | None = None


def restored(scopes: dict[str, Scope]) -> dict[str, Entry]:
    """Return the entry of each variable by its node's name.

    Args:
        scopes: The graph under the empty name and the functions under theirs.
    """
    top = scopes[""]
    handles = {node.name: node.name for node in top.nodes if node.op in VARIABLES}
    found = {
        str(attribute(node, "shared_name").s.decode("utf-8", "replace") or node.name): node.name
        for node in top.nodes
        if node.op in VARIABLES
    }
    # Without a restoring operation the names of the variables are those of the entries.
    entries = {node: Entry(key) for key, node in found.items()}
    named = dict(_in_scope(scopes, top, handles, 0))
    for copy, source in _copies(top):
        if copy in named and source not in named:
            entries[source] = named[copy]
    return entries | named


def _copies(top: Scope) -> Iterator[tuple[str, str]]:
    """Yield variables that begin as another's numbers, with that other.

    Keras stores such copies, while the signature reads the other, which is not stored.
    """
    for node in top.nodes:
        if node.op not in _ASSIGN:
            continue
        read = top.by_name.get(node.input[1].partition(":")[0])
        source = top.by_name.get(read.input[0]) if read is not None and read.input else None
        if (
            source is not None
            and read is not None
            and read.op == "ReadVariableOp"
            and source.op in VARIABLES
        ):
            yield node.input[0], source.name


def _in_scope(
    scopes: dict[str, Scope], scope: Scope, handles: dict[str, str], depth: int
) -> Iterator[tuple[str, Entry]]:
    """Yield variables with their entries.

    Args:
        handles: Names in this scope to the variables that they are handles of.
    """
    for node in scope.nodes:
        if node.op == "RestoreV2":
            yield from _of_restore(scope, node, handles)
        inner = scopes.get(attribute(node, "f").func.name) if node.op in _CALLS else None
        if inner is None or inner.function is None or depth >= _DEEPEST:
            continue  # a call of nothing known, or of the main graph, which no call can mean
        arguments = [one.name for one in inner.function.signature.input_arg]
        passed = {
            argument: handles[name.partition(":")[0]]
            for argument, name in zip(arguments, node.input, strict=False)
            if name.partition(":")[0] in handles
        }
        if passed:
            yield from _in_scope(scopes, inner, passed, depth + 1)


def _of_restore(scope: Scope, node: Any, handles: dict[str, str]) -> Iterator[tuple[str, Entry]]:
    keys, parts = _texts(scope, node.input[1]), _texts(scope, node.input[2])
    for assign in scope.nodes:
        if assign.op not in _ASSIGN or assign.input[0].partition(":")[0] not in handles:
            continue
        number = _restored_number(scope, assign.input[1], node.name)
        if number is not None and number < len(keys):
            part = parts[number] if number < len(parts) else ""
            variable = handles[assign.input[0].partition(":")[0]]
            yield variable, Entry(keys[number], _bounds(part))


def _restored_number(scope: Scope, name: str, restore: str) -> int | None:
    """Return which output of RestoreV2 a value is, through identities."""
    for _ in range(4):
        node, _, rest = name.partition(":")
        if node == restore:
            last = rest.rpartition(":")[2]
            return int(last) if last.isdigit() else 0
        source = scope.by_name.get(node)
        if source is None or source.op != "Identity":
            return None
        name = source.input[0]
    return None


def _texts(scope: Scope, name: str) -> list[str]:
    node = scope.by_name.get(name.partition(":")[0])
    if node is None or node.op != "Const":
        return []
    tensor = attribute(node, "value").tensor
    return [one.decode("utf-8", "replace") for one in tensor.string_val]


def _bounds(text: str) -> Bounds | None:
    """Read `64 32 0,16:0,32`: the whole shape, then first index and length, `-` for all."""
    if not text.strip():
        return None
    parts = text.rsplit(maxsplit=1)[-1].split(":")
    return tuple(
        (0, -1) if one == "-" else (int(one.split(",")[0]), int(one.split(",")[1])) for one in parts
    )
