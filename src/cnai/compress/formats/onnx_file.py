"""An ONNX model, read, changed and written: weights wherever the format lets them lie.

They may be initializers or Constant nodes, in the graph, in the branches of an If or the body of a
Loop, in functions, and in a file beside the model. A weight becomes an int8 initializer, a Cast and
a Mul by its scales, which runtimes fold at load; the DequantizeLinear form stays in the graph and
costs up to half the speed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, external_data_helper, helper, numpy_helper

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.damage import telling_damage
from cnai.compress.formats.recognise import Format
from cnai.compress.formats.weights import Weight
from cnai.core.errors import DataError
from cnai.core.files import file_atomically, write_atomically

_TYPES: dict[int, Any] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
}
_PASS = {"Identity", "Cast"}
_RESHAPE = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Pad", "Slice", "Expand"}
_RECURRENT = {"LSTM", "GRU", "RNN"}
_COUNTED = 1024
_LARGEST_MESSAGE = 2**31 - 2**20
_OLDEST_OPSET = 7


@dataclass(slots=True)
class _Scope:
    """A graph or function with the constants that it owns."""

    path: str
    graph: Any
    constants: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, list[tuple[Any, int]]] = field(default_factory=lambda: defaultdict(list))


class OnnxFile:
    """An ONNX model.

    Args:
        path: The file; its external data is read from beside it, when it is needed.

    Raises:
        DataError: It is no ONNX model, is damaged, or its external data is missing.
    """

    format = Format.ONNX
    overhead_bytes = 120

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.model = onnx.load(str(path), load_external_data=False)
        except (DecodeError, UnicodeDecodeError, OSError) as error:
            raise DataError(
                f"`{path.name}` is no whole ONNX model: {error}",
                where=str(path),
                hint="copy the file again, or export the model anew",
            ) from error
        self.opset = _opset(self.model)
        if self.opset < _OLDEST_OPSET:
            raise DataError(
                f"`{path.name}` has opset {self.opset}; its Mul cannot apply a scale a channel",
                where=str(path),
                hint="convert it with `onnx.version_converter` to opset 7 or newer",
            )
        with telling_damage(str(path)):
            self._scopes = {scope.path: scope for scope in _scopes(self.model)}
        self._names = {
            name
            for scope in self._scopes.values()
            for node in scope.graph.node
            for name in (*node.input, *node.output)
        }
        self._named = 0
        self._check_names()
        self._check_external()

    def weights(self) -> Iterator[Weight]:
        """Yield every float constant of all graphs."""
        for scope in self._scopes.values():
            for name, tensor in scope.constants.items():
                if tensor.data_type in _TYPES:
                    with telling_damage(str(self._path)):
                        weight = self._weight(scope, name, tensor)
                    yield weight

    def read(self, weight: Weight) -> NDArray[np.floating]:
        """Return the numbers of a weight in its own type."""
        tensor = self._tensor(weight)
        try:
            values = numpy_helper.to_array(tensor, base_dir=str(self._path.parent))
        except (ValueError, TypeError, OSError) as error:
            raise DataError(
                f"the constant `{weight.name}` is damaged: {error}",
                where=str(self._path),
                hint="copy the file again, or export the model anew",
            ) from error
        return np.asarray(values)

    def replace(self, weight: Weight, new: QuantizedArray | NDArray[np.float16]) -> None:
        """Put int8, Cast and Mul (or float16 and Cast) in the place of a constant."""
        path, _, name = weight.name.rpartition("/:/")
        scope = self._scopes[path]
        kind = scope.constants[name].data_type
        self._drop(scope, name)
        # Short names: a node mentions them often, and small models are mostly names.
        short = self._free_name()
        scale, floats = f"{short}s", f"{short}f"
        if isinstance(new, QuantizedArray):
            # Each stands before the one inserted last: a graph is listed in the order of its flow.
            scope.graph.node.insert(0, helper.make_node("Mul", [floats, scale], [name]))
            scope.graph.node.insert(0, helper.make_node("Cast", [short], [floats], to=kind))
            self._add(scope, scale, new.scale.astype(_TYPES[kind]))
            self._add(scope, short, new.values)
        else:
            scope.graph.node.insert(0, helper.make_node("Cast", [short], [name], to=kind))
            self._add(scope, short, new)

    def quantized(self) -> int:
        """Return the number of 8-bit constants of some size."""
        kinds = {TensorProto.INT8, TensorProto.UINT8}
        return sum(
            tensor.data_type in kinds and math.prod(tensor.dims) >= _COUNTED
            for scope in self._scopes.values()
            for tensor in scope.constants.values()
        )

    def save(self, target: Path) -> None:
        """Write the model; one too long for a message gets its weights in `<name>.data`."""
        tensors = [one for scope in self._scopes.values() for one in scope.constants.values()]
        outside = [one for one in tensors if external_data_helper.uses_external_data(one)]
        if outside or self.model.ByteSize() > _LARGEST_MESSAGE:
            self._save_beside(target, tensors)
        write_atomically(target, self.model.SerializeToString(deterministic=True))

    def _save_beside(self, target: Path, tensors: list[Any]) -> None:
        """Write every larger constant into one file beside the model, one after the other."""
        data = target.with_name(f"{target.name}.data")
        with file_atomically(data) as file:
            for tensor in tensors:
                if external_data_helper.uses_external_data(tensor):
                    external_data_helper.load_external_data_for_tensor(
                        tensor, str(self._path.parent)
                    )
                if tensor.data_type == TensorProto.STRING or math.prod(tensor.dims) < _COUNTED:
                    tensor.data_location = TensorProto.DEFAULT
                    del tensor.external_data[:]
                    continue
                content = numpy_helper.to_array(tensor).tobytes()
                place = file.tell()
                file.write(content)
                for one in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                    tensor.ClearField(one)
                tensor.raw_data = content
                external_data_helper.set_external_data(
                    tensor, location=data.name, offset=place, length=len(content)
                )
                tensor.ClearField("raw_data")

    def _tensor(self, weight: Weight) -> Any:
        path, _, name = weight.name.rpartition("/:/")
        return self._scopes[path].constants[name]

    def _weight(self, scope: _Scope, name: str, tensor: Any) -> Weight:
        use, axes = self._use(scope, name, len(tensor.dims))
        return Weight(
            name=f"{scope.path}/:/{name}" if scope.path else name,
            use=use,
            shape=tuple(tensor.dims),
            dtype=np.dtype(_TYPES[tensor.data_type]).name,
            axes=axes,
        )

    def _use(self, scope: _Scope, constant: str, rank: int) -> tuple[str, tuple[int, ...] | None]:
        """Follow a constant to the operation that uses it as weights, also in inner graphs."""
        scopes = [one for path, one in self._scopes.items() if _encloses(scope.path, path)]
        waiting, seen, reshaped = [constant], {constant}, set[str]()
        while waiting:
            name = waiting.pop(0)
            for inner in scopes:
                for node, index in inner.consumers.get(name, ()):
                    axes = _channel_axes(node, index, rank)
                    if axes is not None:
                        return node.op_type, None if name in reshaped else axes
                    if node.op_type in _PASS | _RESHAPE and index == 0:
                        fresh = [one for one in node.output if one not in seen]
                        seen.update(fresh)
                        waiting += fresh
                        if node.op_type in _RESHAPE or name in reshaped:
                            reshaped.update(fresh)
        return "", None

    def _free_name(self) -> str:
        while True:
            self._named += 1
            name = f"q{self._named}"
            if not {name, f"{name}s", f"{name}f"} & self._names:
                return name

    def _drop(self, scope: _Scope, name: str) -> None:
        """Remove a constant: its initializer and input, or its node."""
        graph = scope.graph
        for kept in [getattr(graph, "initializer", ()), _named_inputs(graph)]:
            for index, one in enumerate(kept):
                if one.name == name:
                    del kept[index]
                    break
        for index, node in enumerate(graph.node):
            if node.op_type == "Constant" and node.output[0] == name:
                del graph.node[index]
                break
        del scope.constants[name]

    def _add(self, scope: _Scope, name: str, values: NDArray[Any]) -> None:
        tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
        scope.constants[name] = tensor
        if hasattr(scope.graph, "initializer"):
            scope.graph.initializer.append(tensor)
        else:
            # A function has no initializers.
            scope.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))

    def _check_names(self) -> None:
        """Refuse names that are no text: protobuf gives them as bytes, and runtimes refuse them."""
        held = {name for scope in self._scopes.values() for name in scope.constants}
        broken = [name for name in self._names | held if not isinstance(name, str)]
        if broken:
            raise DataError(
                f"the name {broken[0]!r} is no text",
                where=str(self._path),
                hint="the file is damaged; copy it again, or export the model anew",
            )

    def _check_external(self) -> None:
        for scope in self._scopes.values():
            for name, tensor in scope.constants.items():
                if not external_data_helper.uses_external_data(tensor):
                    continue
                info: Any = external_data_helper.ExternalDataInfo(tensor)
                file = (self._path.parent / info.location).resolve()
                beside = file.is_relative_to(self._path.parent.resolve())
                end = (info.offset or 0) + (info.length or 0)
                if not beside or not file.is_file() or file.stat().st_size < end:
                    raise DataError(
                        f"the numbers of `{name}` should lie in `{info.location}`, which is "
                        + ("missing or too short" if beside else "outside the model's folder"),
                        where=str(self._path),
                        hint="copy the file of external data beside the model",
                    )


def _named_inputs(graph: Any) -> Any:
    """Return the inputs of a graph; those of a function are plain strings, never weights."""
    return () if isinstance(graph, onnx.FunctionProto) else graph.input


def _opset(model: Any) -> int:
    versions = [one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}]
    return max(versions, default=_OLDEST_OPSET)


def _scopes(model: Any) -> Iterator[_Scope]:
    yield from _graph_scopes("", model.graph)
    for function in model.functions:
        yield from _graph_scopes(f"{function.domain}.{function.name}", function)


def _graph_scopes(path: str, graph: Any) -> Iterator[_Scope]:
    scope = _Scope(path, graph)
    for tensor in getattr(graph, "initializer", ()):
        scope.constants[tensor.name] = tensor
    inner: list[_Scope] = []
    for place, node in enumerate(graph.node):
        for index, name in enumerate(node.input):
            scope.consumers[name].append((node, index))
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                scope.constants[node.output[0]] = attribute.t
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            for number, body in enumerate(graphs):
                name = node.name or f"{node.op_type}{place}"
                inner += _graph_scopes(f"{path}/{name}.{attribute.name}{number}", body)
    # A constant that is the graph's output must keep being one.
    for one in graph.output:
        scope.constants.pop(one if isinstance(one, str) else one.name, None)
    yield scope
    yield from inner


def _encloses(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer + "/")


def _channel_axes(node: Any, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the output channels' axes of an operand; None when it is no operand of weights."""
    kind = node.op_type
    if kind in {"Conv", "ConvTranspose"} and index == 1:
        return (0,) if kind == "Conv" else (1,)
    if kind in {"MatMul", "Gemm"} and index <= 1 and rank >= 2:
        flag = helper.get_node_attr_value(node, "trans" + "AB"[index]) if _has(node, index) else 0
        summed = rank - 1 if (index == 0) != bool(flag) else rank - 2
        return tuple(axis for axis in range(rank) if axis != summed)
    if kind in _RECURRENT and index in {1, 2}:
        return (0, 1)
    if kind == "Gather" and index == 0:
        return (0,)
    return None


def _has(node: Any, index: int) -> bool:
    return any(one.name == "trans" + "AB"[index] for one in node.attribute)
