"""The nodes of a TensorFlow graph, or of the body of one of its functions, and changes to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cnai.compress.formats.tensorflow_messages import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT32,
    INT64,
    AttrValue,
    NodeDef,
)

TYPES: dict[int, Any] = {
    FLOAT: np.float32,
    DOUBLE: np.float64,
    HALF: np.float16,
    BFLOAT16: ml_dtypes.bfloat16,
}
"""TensorFlow's numbers of the types that weights have."""

OUTPUTS = {"Mul": "z", "Cast": "y", "Transpose": "y", "MatMul": "product"}
"""Names of the first output where it is not `output`; a function's nodes refer to it by name."""


@dataclass(slots=True)
class Scope:
    """A list of nodes with names of its own: the graph, or the body of a function.

    Attributes:
        function: The message of the function; None for the graph itself.
        consumers: Name of a node to those that read it, with the number of the input.
        controlled: Names that others wait for without reading them.
        library: All scopes of the graph by name.
    """

    name: str
    function: Any
    nodes: Any
    by_name: dict[str, Any]
    consumers: dict[str, list[tuple[Any, int]]]
    controlled: set[str]
    library: dict[str, Scope] = field(default_factory=dict)

    def add(self, name: str, op: str, like: Any, *, before: Any = None) -> Any:
        """Add a node before another, or before all: OpenVINO reads a graph from first to last."""
        while name in self.by_name:
            name += "_"
        place = 0
        if before is not None:
            place = next(at for at, one in enumerate(self.nodes) if one.name == before.name)
        self.nodes.insert(place, NodeDef(name=name, op=op, device=like.device))
        node = self.nodes[place]
        self.by_name[name] = node
        return node

    def constant(self, name: str, values: NDArray[Any], kind: int, like: Any) -> Any:
        """Add a constant that is computed where and when `like` was."""
        node = self.add(name, "Const", like)
        node.input.extend(one for one in like.input if one.startswith("^"))
        fill_constant(node, values, kind)
        return node

    def copy(self, name: str, node: Any) -> Any:
        """Add a node before its twin that does the same under another name."""
        added = self.add(name, node.op, node, before=node)
        kept = added.name
        added.CopyFrom(node)
        added.name = kept
        return added

    def become(self, node: Any, op: str, inputs: list[str], **types: int) -> None:
        """Turn a node into another operation of the same name."""
        old = OUTPUTS.get(node.op, "output")
        node.op = op
        del node.input[:]
        node.input.extend(inputs)
        node.attr.clear()
        for key, kind in types.items():
            node.attr[key].type = kind
        if op == "Cast":
            node.attr["Truncate"].b = False
        self._rename_output(node.name, old, OUTPUTS.get(op, "output"))

    def ref(self, node: Any) -> str:
        """Return how other nodes name the first output of a node."""
        return f"{node.name}:{OUTPUTS.get(node.op, 'output')}:0" if self.function else node.name

    def remove(self, names: set[str]) -> None:
        """Remove nodes that nobody reads any more; one that others wait for does nothing then."""
        for name in names & self.controlled:
            self.become(self.by_name[name], "NoOp", [])
        gone = names - self.controlled
        for place in reversed(range(len(self.nodes))):
            if self.nodes[place].name in gone:
                del self.by_name[self.nodes[place].name]
                del self.nodes[place]

    def _rename_output(self, name: str, old: str, new: str) -> None:
        """In a function the users of a node name its output, which may now be another."""
        if self.function is None or old == new:
            return
        before, after = f"{name}:{old}:0", f"{name}:{new}:0"
        for node in self.nodes:
            for index, one in enumerate(node.input):
                if one == before:
                    node.input[index] = after
        for key, value in self.function.ret.items():
            if value == before:
                self.function.ret[key] = after


def scopes_of(graph: Any) -> list[Scope]:
    """Return the graph and the body of each function of its library."""
    scopes = [_scope("", None, graph.node)]
    scopes += [_scope(one.signature.name, one, one.node_def) for one in graph.library.function]
    library = {scope.name: scope for scope in scopes}
    for scope in scopes:
        scope.library = library
    return scopes


_FUNCTIONS = ("f", "cond", "body", "then_branch", "else_branch", "branches")
_CHOICES = {"If", "StatelessIf", "Case", "StatelessCase"}


def called_with(scope: Scope, node: Any, index: int) -> Iterator[tuple[Scope, str]]:
    """Yield the functions that a node calls, with the name of the argument that an input becomes.

    Nothing is yielded for a node that calls none.
    """
    first = 1 if node.op in _CHOICES else 0
    for key in _FUNCTIONS:
        if key not in node.attr:
            continue
        for func in (node.attr[key].func, *node.attr[key].list.func):
            inner = scope.library.get(func.name) if func.name else None
            if inner is None or inner.function is None:
                continue
            arguments = inner.function.signature.input_arg
            if first <= index < len(arguments) + first:
                yield inner, arguments[index - first].name


def _scope(name: str, function: Any, nodes: Any) -> Scope:
    consumers: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    controlled = set()
    for node in nodes:
        for index, read in enumerate(node.input):
            if read.startswith("^"):
                controlled.add(read[1:])
            else:
                consumers[read.split(":")[0]].append((node, index))
    if function is not None:
        for read in function.ret.values():
            # What a function returns is read by its caller; no node stands for it.
            consumers[read.split(":")[0]].append((NodeDef(op="return"), 0))
    return Scope(name, function, nodes, {one.name: one for one in nodes}, consumers, controlled)


def attribute(node: Any, key: str) -> Any:
    """Return an attribute, an empty one where the node has none; asking the map would add it."""
    return node.attr[key] if key in node.attr else AttrValue()


def fill_constant(node: Any, values: NDArray[Any], kind: int) -> None:
    """Give a constant its numbers.

    Args:
        kind: TensorFlow's number of their type.
    """
    node.attr["dtype"].type = kind
    tensor = node.attr["value"].tensor
    tensor.dtype = kind
    # OpenVINO takes a shape that is not there for one that is not known.
    tensor.tensor_shape.SetInParent()
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = np.ascontiguousarray(values).tobytes()


def shape_of(constant: Any) -> tuple[int, ...]:
    """Return the shape of a constant."""
    return tuple(dim.size for dim in attribute(constant, "value").tensor.tensor_shape.dim)


_FEW = 64


def whole_numbers(scope: Scope, name: str) -> tuple[int, ...] | None:
    """Return the few whole numbers of a constant; None when it is no such constant."""
    node = scope.by_name.get(name.partition(":")[0])
    if node is None or node.op != "Const":
        return None
    tensor = attribute(node, "value").tensor
    if tensor.dtype not in {INT32, INT64}:
        return None
    shape = shape_of(node)
    if len(shape) > 1 or not 0 <= (size := shape[0] if shape else 1) <= _FEW:
        return None
    if tensor.tensor_content:
        kind = np.int32 if tensor.dtype == INT32 else np.int64
        if len(tensor.tensor_content) != size * np.dtype(kind).itemsize:
            return None
        return tuple(int(one) for one in np.frombuffer(tensor.tensor_content, kind))
    listed = list(tensor.int_val if tensor.dtype == INT32 else tensor.int64_val) or [0]
    return tuple((listed + listed[-1:] * size)[:size])
