"""A frozen TensorFlow graph (.pb), read, changed and written without TensorFlow.

A weight becomes an int8 constant, a Cast and a Mul by its scales; the Mul takes the old name, so
that nothing else in the graph changes. TensorFlow folds the three at load, so speed stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.recognise import Format
from cnai.compress.formats.tensorflow_messages import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    GraphDef,
    NodeDef,
)  # fmt: skip
from cnai.compress.formats.weights import Weight
from cnai.core.errors import DataError
from cnai.core.files import read_bytes, write_atomically

LARGEST_BYTES = 2**31 - 1
"""A protobuf message cannot be longer."""

_TYPES: dict[int, Any] = {
    FLOAT: np.float32,
    DOUBLE: np.float64,
    HALF: np.float16,
    BFLOAT16: ml_dtypes.bfloat16,
}
_PASS = {"Identity", "Enter", "RefEnter", "StopGradient", "Snapshot", "ReadVariableOp", "Cast"}
_RESHAPE = {"Reshape", "ExpandDims", "Squeeze", "Transpose", "Pad", "SpaceToBatchND"}
_COUNTED_BYTES = 1024


@dataclass(slots=True)
class _Scope:
    """A list of nodes with names of its own: the graph, or the body of a function."""

    function: str
    nodes: Any
    by_name: dict[str, Any]
    consumers: dict[str, list[tuple[Any, int]]]


class GraphDefFile:
    """A frozen graph.

    Args:
        path: The file.

    Raises:
        DataError: It is no frozen graph, is damaged, or is larger than protobuf can be.
    """

    format = Format.GRAPHDEF
    overhead_bytes = 260

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > LARGEST_BYTES:
            raise DataError(
                f"`{path.name}` is larger than 2 GB, which a protobuf message cannot be",
                where=str(path),
                hint="give the model as ONNX with external data or as a SavedModel",
            )
        self.graph = GraphDef()
        try:
            self.graph.ParseFromString(read_bytes(path, hint="look at the path"))
        except (DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"`{path.name}` is no whole TensorFlow graph: {error}",
                where=str(path),
                hint="copy the file again, or freeze the model anew",
            ) from error
        self._path = path
        self._scopes = {scope.function: scope for scope in _scopes(self.graph)}

    def weights(self) -> Iterator[Weight]:
        """Yield every float constant of the graph and of the functions in its library."""
        for scope in self._scopes.values():
            for node in scope.nodes:
                if node.op == "Const" and node.attr["dtype"].type in _TYPES:
                    yield self._weight(scope, node)

    def read(self, weight: Weight) -> NDArray[np.floating]:
        """Return the numbers of a weight in its own type."""
        return array_of(
            self._node(weight).attr["value"].tensor, where=f"{self._path}: {weight.name}"
        )

    def replace(self, weight: Weight, new: QuantizedArray | NDArray[np.float16]) -> None:
        """Put int8, Cast and Mul (or float16 and Cast) in the place of a constant."""
        function, _, name = weight.name.rpartition("/:/")
        scope = self._scopes[function]
        node = scope.by_name[name]
        kind = node.attr["dtype"].type
        if isinstance(new, QuantizedArray):
            floats = _add(scope, f"{name}/cast", "Cast", node)
            scale = _constant(scope, f"{name}/scale", new.scale.astype(_TYPES[kind]), kind, node)
            stored = _constant(scope, f"{name}/int8", new.values, INT8, node)
            _become(floats, "Cast", [_ref(scope, stored, "output")], SrcT=INT8, DstT=kind)
            inputs = [_ref(scope, floats, "y"), _ref(scope, scale, "output")]
            _become(node, "Mul", inputs, T=kind)
        else:
            stored = _constant(scope, f"{name}/float16", new, HALF, node)
            _become(node, "Cast", [_ref(scope, stored, "output")], SrcT=HALF, DstT=kind)
        self._rename_output(scope, name, "z" if isinstance(new, QuantizedArray) else "y")

    def quantized(self) -> int:
        """Return the number of int8 constants of some size."""
        return sum(
            node.op == "Const"
            and node.attr["dtype"].type == INT8
            and len(node.attr["value"].tensor.tensor_content) >= _COUNTED_BYTES
            for scope in self._scopes.values()
            for node in scope.nodes
        )

    def save(self, target: Path) -> None:
        """Write the graph."""
        write_atomically(target, self.graph.SerializeToString(deterministic=True))

    def _node(self, weight: Weight) -> Any:
        function, _, name = weight.name.rpartition("/:/")
        return self._scopes[function].by_name[name]

    def _weight(self, scope: _Scope, node: Any) -> Weight:
        use, axes, after_input = _use(scope, node)
        shape = tuple(dim.size for dim in node.attr["value"].tensor.tensor_shape.dim)
        return Weight(
            name=f"{scope.function}/:/{node.name}" if scope.function else node.name,
            use=use,
            shape=shape,
            dtype=np.dtype(_TYPES[node.attr["dtype"].type]).name,
            axes=axes if axes is None or all(axis < len(shape) for axis in axes) else None,
            after_input=after_input,
        )

    def _rename_output(self, scope: _Scope, name: str, output: str) -> None:
        """In a function the users of a node name its output, which is now another."""
        if not scope.function:
            return
        old = f"{name}:output:0"
        for node in scope.nodes:
            for index, one in enumerate(node.input):
                if one == old:
                    node.input[index] = f"{name}:{output}:0"
        for function in self.graph.library.function:
            if function.signature.name == scope.function:
                _rename_returned(function, old, f"{name}:{output}:0")


def _scopes(graph: Any) -> Iterator[_Scope]:
    yield _scope("", graph.node)
    for function in graph.library.function:
        yield _scope(function.signature.name, function.node_def)


def _scope(function: str, nodes: Any) -> _Scope:
    consumers: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for node in nodes:
        for index, name in enumerate(node.input):
            if not name.startswith("^"):
                consumers[name.split(":")[0]].append((node, index))
    return _Scope(function, nodes, {node.name: node for node in nodes}, consumers)


def _use(scope: _Scope, constant: Any) -> tuple[str, tuple[int, ...] | None, bool]:
    """Follow a constant to the operation that uses it as weights.

    Returns:
        The operation, its output channels' axes in the constant's own shape (None = not known),
        and whether the operation reads the graph's input.
    """
    rank = len(constant.attr["value"].tensor.tensor_shape.dim)
    waiting, seen, reshaped = [constant.name], {constant.name}, set[str]()
    while waiting:
        name = waiting.pop(0)
        for node, index in scope.consumers.get(name, ()):
            axes = _channel_axes(node, index, rank)
            if axes is not None:
                moved = name in reshaped
                return node.op, None if moved else axes, _reads_input(scope, node, index)
            if node.op in _PASS | _RESHAPE and index == 0 and node.name not in seen:
                seen.add(node.name)
                waiting.append(node.name)
                if node.op in _RESHAPE or name in reshaped:
                    reshaped.add(node.name)
    return "", None, False


_CONVOLUTIONS = {"Conv2D": (3,), "Conv3D": (4,), "DepthwiseConv2dNative": (2, 3)}
_BACKWARD = {"Conv2DBackpropInput": (1, (2,)), "Conv3DBackpropInputV2": (1, (3,))}


_LOOKUPS = ("Gather", "GatherV2", "ResourceGather", "SparseSegment", "EmbeddingLookup")


def _channel_axes(node: Any, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the output channels' axes of an operand; None when it is no operand of weights."""
    if node.op in _CONVOLUTIONS:
        return _CONVOLUTIONS[node.op] if index == 1 else None
    if node.op in _BACKWARD:
        at, axes = _BACKWARD[node.op]
        return axes if index == at else None
    if node.op in {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"} and rank >= 2:
        flag = "transpose_" + "ab"[index] if node.op == "MatMul" else "adj_" + "xy"[index]
        summed = rank - 1 if (index == 0) != node.attr[flag].b else rank - 2
        return tuple(axis for axis in range(rank) if axis != summed)
    if node.op.startswith(_LOOKUPS):
        return (0,) if index == 0 else None
    return None


def _reads_input(scope: _Scope, node: Any, weight_index: int) -> bool:
    """Tell whether the other operand comes from a placeholder through reshapes alone."""
    others = [name for index, name in enumerate(node.input) if index != weight_index]
    name = others[0] if others else ""
    for _ in range(8):
        source = scope.by_name.get(name.split(":")[0].lstrip("^"))
        if source is None:
            return bool(scope.function)
        if source.op == "Placeholder":
            return True
        if source.op not in _PASS | _RESHAPE or not source.input:
            return False
        name = source.input[0]
    return False


def array_of(tensor: Any, *, where: str) -> NDArray[np.floating]:
    """Return the numbers of a TensorProto.

    Raises:
        DataError: Their count does not fit the shape.
    """
    kind = np.dtype(_TYPES[tensor.dtype])
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    size = int(np.prod(shape, dtype=np.int64)) if min(shape, default=0) >= 0 else -1
    if tensor.tensor_content:
        held = len(tensor.tensor_content) // kind.itemsize
        if held == size and len(tensor.tensor_content) == size * kind.itemsize:
            return np.frombuffer(tensor.tensor_content, kind).reshape(shape)
    else:
        listed = _listed(tensor, kind)
        held = len(listed)
        # A list that is too short goes on with its last number; an empty one means zeros.
        if 0 <= held <= size:
            tail = listed[-1] if held else kind.type(0)
            return np.concatenate([listed, np.full(size - held, tail, kind)]).reshape(shape)
    raise DataError(
        f"a constant of shape {list(shape)} holds {held} numbers",
        where=where,
        hint="the file is damaged; copy it again, or freeze the model anew",
    )


def _listed(tensor: Any, kind: np.dtype[Any]) -> NDArray[np.floating]:
    if kind == np.float32:
        return np.array(tensor.float_val, np.float32)
    if kind == np.float64:
        return np.array(tensor.double_val, np.float64)
    return np.array(tensor.half_val, np.int32).astype(np.uint16).view(kind)


def _constant(scope: _Scope, name: str, values: NDArray[Any], kind: int, like: Any) -> Any:
    """Add a constant that is computed where and when `like` was."""
    node = _add(scope, name, "Const", like)
    node.input.extend(one for one in like.input if one.startswith("^"))
    node.attr["dtype"].type = kind
    tensor = node.attr["value"].tensor
    tensor.dtype = kind
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = np.ascontiguousarray(values).tobytes()
    return node


def _add(scope: _Scope, name: str, op: str, like: Any) -> Any:
    """Add a node before all others: OpenVINO reads a graph from its first node to its last."""
    while name in scope.by_name:
        name += "_"
    scope.nodes.insert(0, NodeDef(name=name, op=op, device=like.device))
    node = scope.nodes[0]
    scope.by_name[name] = node
    return node


def _become(node: Any, op: str, inputs: list[str], **types: int) -> None:
    """Turn a node into another operation of the same name."""
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    node.attr.clear()
    for key, kind in types.items():
        node.attr[key].type = kind
    if op == "Cast":
        node.attr["Truncate"].b = False


def _ref(scope: _Scope, node: Any, output: str) -> str:
    return f"{node.name}:{output}:0" if scope.function else node.name


def _rename_returned(function: Any, old: str, new: str) -> None:
    for key, value in function.ret.items():
        if value == old:
            function.ret[key] = new
