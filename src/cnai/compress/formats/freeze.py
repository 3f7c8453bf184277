"""Turns variables of a TensorFlow graph into constants, in its functions too.

A variable becomes a constant where its handle was. A function that took the handle takes the
numbers instead; one that is called only once holds the constant itself, so that its use is seen
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.formats.graph_scope import attribute, fill_constant
from cnai.compress.formats.restored import VARIABLES
from cnai.compress.formats.tensorflow_messages import INT32, FunctionDef, NodeDef
from cnai.core.errors import SpecError

_CALL = {"PartitionedCall", "StatefulPartitionedCall"}
_SHAPED = {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
_TEXT, _BOOL = 7, 10
_FUNCTIONS = ("f", "cond", "body", "then_branch", "else_branch", "branches")
Value = Callable[[Any], tuple[NDArray[Any], int] | None]
"""Returns the numbers of a variable by its node, with TensorFlow's number of their type; None when
it must stay a variable."""


@dataclass(slots=True)
class _Frozen:
    """A name in a scope that stands for a variable's numbers.

    Attributes:
        node: The constant in this scope; None when it is an argument.
        handle: Whether it was a handle, which only some operations can read.
    """

    kind: int
    node: Any = None
    handle: bool = True


@dataclass(slots=True)
class _Work:
    graph: Any
    value: Value
    functions: dict[str, Any]
    calls: Counter[str]
    made: dict[tuple[str, tuple[tuple[int, int], ...]], str] = field(default_factory=dict)


def freeze(graph: Any, roots: set[str], value: Value) -> None:
    """Keep what the roots need, with constants for variables.

    Args:
        graph: The message of the graph, changed in place.
        roots: Names of nodes.

    Raises:
        SpecError: What the roots need changes a variable.
    """
    _drop_initializers(graph)
    _prune(graph, roots)
    functions = {one.signature.name: one for one in graph.library.function}
    work = _Work(graph, value, functions, _calls(graph.node, functions))
    frozen: dict[str, _Frozen] = {}
    for node in graph.node:
        if node.op in VARIABLES:
            held = value(node)
            if held is None:
                continue
            numbers, kind = held
            frozen[node.name] = _Frozen(kind, node, handle=node.op == "VarHandleOp")
            _to_constant(node, numbers, kind)
    _rewrite(work, graph.node, frozen, function=None)
    _prune(graph, roots)


def is_text(variable: Any) -> bool:
    """Tell whether a variable holds text: the path of a file, which is known only at load."""
    return bool(attribute(variable, "dtype").type == _TEXT)


def _drop_initializers(graph: Any) -> None:
    """Let nothing wait for the assignments that give variables their first numbers."""
    variables = {node.name for node in graph.node if node.op in VARIABLES and not is_text(node)}
    assigns = {
        f"^{node.name}"
        for node in graph.node
        if node.op in {"Assign", "AssignVariableOp"} and node.input[0] in variables
    }
    for node in graph.node:
        if not assigns.isdisjoint(node.input):
            kept = [one for one in node.input if one not in assigns]
            del node.input[:]
            node.input.extend(kept)


def _all_called(node: Any) -> list[str]:
    """Return all functions that any attribute of a node names."""
    found = [node.op]
    for one in node.attr.values():
        found += [func.name for func in (one.func, *one.list.func) if func.name]
    return found


def _prune(graph: Any, roots: set[str]) -> None:
    """Drop nodes and functions that the roots do not need."""
    by_name = {node.name: node for node in graph.node}
    waiting, needed = [one for one in roots if one in by_name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in needed or name not in by_name:
            continue
        needed.add(name)
        waiting += [one.lstrip("^").partition(":")[0] for one in by_name[name].input]
    kept = [node for node in graph.node if node.name in needed]
    functions = {one.signature.name: one for one in graph.library.function}
    called, pending = set[str](), [one for node in kept for one in _all_called(node)]
    while pending:
        name = pending.pop()
        if name in functions and name not in called:
            called.add(name)
            pending += [one for node in functions[name].node_def for one in _all_called(node)]
    for place in reversed(range(len(graph.node))):
        if graph.node[place].name not in needed:
            del graph.node[place]
    for place in reversed(range(len(graph.library.function))):
        if graph.library.function[place].signature.name not in called:
            del graph.library.function[place]
    del graph.library.gradient[:]
    for node in graph.node:
        _forget_hints(node)


def _forget_hints(node: Any) -> None:
    """Drop what names nodes that may be gone, and shapes that may have changed."""
    node.attr.pop("_class", None)
    node.attr.pop("_output_shapes", None)


def _calls(nodes: Any, functions: dict[str, Any]) -> Counter[str]:
    """Count how often each function is called."""
    bodies = [nodes, *(one.node_def for one in functions.values())]
    return Counter(name for body in bodies for node in body for name in _all_called(node))


def _to_constant(node: Any, numbers: NDArray[Any], kind: int) -> None:
    node.op = "Const"
    node.attr.clear()
    fill_constant(node, numbers, kind)


def _rewrite(work: _Work, nodes: Any, frozen: dict[str, _Frozen], *, function: Any) -> None:
    """Let the nodes of a scope use numbers instead of handles."""
    readers = Counter(
        one.partition(":")[0] for node in nodes for one in node.input if not one.startswith("^")
    )
    for node in list(nodes):
        used = {
            index: name
            for index, one in enumerate(node.input)
            if (name := one.partition(":")[0]) in frozen and not one.startswith("^")
        }
        if not used:
            continue
        if node.op in _CALL:
            _rewrite_call(work, node, used, frozen, readers)
        elif node.op in _SHAPED:
            _rewrite_branches(work, node, used, frozen)
        else:
            _rewrite_reader(nodes, node, used, frozen, function=function)
    gone = {
        one.node.name
        for one in frozen.values()
        if one.node is not None and one.node.op == "NoOp" and one.node.name
    }
    for place in reversed(range(len(nodes))):
        if nodes[place].name in gone:
            del nodes[place]


_PASS = {"Identity", "Enter", "RefEnter", "RefIdentity"}
_CHANGES = ("Assign", "ResourceApply", "ResourceScatter", "Scatter", "Apply", "RestoreV2")


def _rewrite_reader(
    nodes: Any, node: Any, used: dict[int, str], frozen: dict[str, _Frozen], *, function: Any
) -> None:
    source = frozen[used[min(used)]]
    if node.op.startswith(_CHANGES):
        raise SpecError(
            f"the model changes its variable `{used[min(used)]}` when it is used ({node.op})",
            where=node.name,
            hint="export it for inference, without what trains it or keeps state",
        )
    if node.op in _PASS:
        node.op = node.op.removeprefix("Ref")
        node.attr["T"].type = source.kind
        frozen[node.name] = _Frozen(source.kind, handle=source.handle)
    elif source.handle:
        _rewrite_handle_reader(nodes, node, source.kind, function)


def _rewrite_handle_reader(nodes: Any, node: Any, kind: int, function: Any) -> None:
    if node.op == "ReadVariableOp":
        _rename(nodes, function, node.name, "value", "output")
        node.op = "Identity"
        node.attr.clear()
        node.attr["T"].type = kind
    elif node.op in {"ResourceGather", "ResourceGatherNd"}:
        node.attr["Tparams"].type = kind
        node.attr.pop("dtype", None)
        node.attr.pop("validate_indices", None)
        node.op = "GatherNd" if node.op.endswith("Nd") else "GatherV2"
        if node.op == "GatherV2":
            _add_axis(nodes, node, function)
        else:
            node.attr.pop("batch_dims", None)
    elif node.op == "VariableShape":
        node.op = "Shape"
        node.attr["T"].type = kind
    elif node.op == "VarIsInitializedOp":
        _rename(nodes, function, node.name, "is_initialized", "output")
        _to_constant(node, np.array(True), _BOOL)
        del node.input[:]
    else:
        raise SpecError(
            f"the model reads a variable by `{node.op}`, which is not known here",
            where=node.name,
            hint="freeze it with TensorFlow to a .pb, and give that",
        )


def _add_axis(nodes: Any, node: Any, function: Any) -> None:
    axis = NodeDef(name=f"{node.name}/rows", op="Const")
    node.attr["batch_dims"].i = attribute(node, "batch_dims").i
    fill_constant(axis, np.array(node.attr["batch_dims"].i, np.int32), INT32)
    nodes.insert(0, axis)
    node.attr["Taxis"].type = INT32
    data = [one for one in node.input if not one.startswith("^")]
    waits = [one for one in node.input if one.startswith("^")]
    del node.input[:]
    node.input.extend([*data, axis.name if function is None else f"{axis.name}:output:0", *waits])


def _rename(nodes: Any, function: Any, name: str, old: str, new: str) -> None:
    """In a function the users of a node name its output."""
    if function is None:
        return
    before, after = f"{name}:{old}:0", f"{name}:{new}:0"
    for node in nodes:
        for index, one in enumerate(node.input):
            if one == before:
                node.input[index] = after
    for key, value in function.ret.items():
        if value == before:
            function.ret[key] = after


def _rewrite_call(
    work: _Work,
    node: Any,
    used: dict[int, str],
    frozen: dict[str, _Frozen],
    readers: Counter[str],
) -> None:
    """Let a called function take numbers, or hold them when nobody else needs them."""
    name = node.attr["f"].func.name
    sunk: dict[int, Any] = {}
    for index, source in used.items():
        constant = frozen[source].node
        if constant is not None and readers[source] == 1 and work.calls[name] == 1:
            sunk[index] = constant
    kinds = {index: frozen[source].kind for index, source in used.items()}
    node.attr["f"].func.name = _specialised(work, name, kinds, sunk)
    types = node.attr["Tin"].list.type
    for index, kind in kinds.items():
        types[index] = kind
    for index in sorted(sunk, reverse=True):
        del node.input[index]
        del types[index]
        sunk[index].op = "NoOp"


def _rewrite_branches(
    work: _Work, node: Any, used: dict[int, str], frozen: dict[str, _Frozen]
) -> None:
    """Let the branches of an If, or the condition and body of a While, take numbers."""
    first = 0 if node.op.endswith("While") else 1
    kinds = {index - first: frozen[source].kind for index, source in used.items()}
    for key in _FUNCTIONS:
        if key not in node.attr:
            continue
        for func in [*node.attr[key].list.func] or [node.attr[key].func]:
            func.name = _specialised(work, func.name, kinds, {})
    types = node.attr["T" if first == 0 else "Tin"].list.type
    shapes = node.attr["output_shapes"].list.shape if first == 0 else ()
    for index, kind in kinds.items():
        types[index] = kind
        if index < len(shapes):
            shapes[index].Clear()
            shapes[index].unknown_rank = True


def _specialised(work: _Work, name: str, kinds: dict[int, int], sunk: dict[int, Any]) -> str:
    """Return the name of a twin of a function that takes numbers for handles."""
    key = (name, tuple(sorted(kinds.items())))
    if key in work.made and not sunk:
        return work.made[key]
    original = work.functions[name]
    twin = FunctionDef()
    twin.CopyFrom(original)
    twin.signature.name = f"{name}_frozen{len(work.made)}"
    work.made[key] = twin.signature.name
    twin.ClearField("arg_attr")
    twin.ClearField("resource_arg_unique_id")
    twin.attr.pop("_input_shapes", None)
    frozen: dict[str, _Frozen] = {}
    added = []
    for index, kind in kinds.items():
        argument = twin.signature.input_arg[index]
        argument.type = kind
        argument.ClearField("type_attr")
        frozen[argument.name] = _Frozen(kind)
        if index in sunk:
            constant = NodeDef()
            constant.CopyFrom(sunk[index])
            constant.name = argument.name
            del constant.input[:]
            added.append(constant)
    for output in twin.signature.output_arg:
        source = twin.ret.get(output.name, "")
        if source in frozen:
            output.type = frozen[source].kind
    for constant in added:
        _let_read(twin, constant.name)
        twin.node_def.insert(0, constant)
        frozen[constant.name] = _Frozen(frozen[constant.name].kind, twin.node_def[0])
    for index in sorted(sunk, reverse=True):
        del twin.signature.input_arg[index]
    work.functions[twin.signature.name] = twin
    for node in twin.node_def:
        _forget_hints(node)
    _rewrite(work, twin.node_def, frozen, function=twin)
    work.graph.library.function.append(twin)
    return str(twin.signature.name)


def _let_read(function: Any, name: str) -> None:
    """Let the nodes that read an argument read a constant of its name."""
    for node in function.node_def:
        for index, one in enumerate(node.input):
            if one == name:
                node.input[index] = f"{name}:output:0"
    for key, value in function.ret.items():
        if value == name:
            function.ret[key] = f"{name}:output:0"
