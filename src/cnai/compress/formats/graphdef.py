"""A frozen TensorFlow graph (.pb), read, changed and written without TensorFlow.

A weight becomes an int8 constant, a Cast and a Mul by its scales; the Mul takes the old name, so
that nothing else in the graph changes. TensorFlow folds the three at load, so speed stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.damage import telling_damage
from cnai.compress.formats.graph_pieces import put_large_weight, put_weight
from cnai.compress.formats.graph_scope import TYPES, Scope, attribute, scopes_of
from cnai.compress.formats.graph_use import Use, use_of
from cnai.compress.formats.recognise import Format
from cnai.compress.formats.tensorflow_messages import INT8, GraphDef
from cnai.compress.formats.weights import Weight
from cnai.core.errors import DataError
from cnai.core.files import read_bytes, write_atomically

LARGEST_BYTES = 2**31 - 1
"""A protobuf message cannot be longer."""

_COUNTED_BYTES = 1024


class GraphWeights:
    """The weights of a graph of constants, whatever file it came from.

    Args:
        graph: The message; its weights are replaced in place.
        where: What errors name.
    """

    overhead_bytes = 260

    def __init__(self, graph: Any, where: str) -> None:
        self.graph = graph
        self._where = where
        self._scopes = scopes_of(graph)
        self._places: dict[str, tuple[Scope, Any, Use]] = {}

    def weights(self) -> Iterator[Weight]:
        """Yield every float constant of the graph and of the functions in its library."""
        for scope in self._scopes:
            for node in scope.nodes:
                if node.op == "Const" and _holds_numbers(node):
                    with telling_damage(self._where):
                        weight = self._weight(scope, node)
                    yield weight

    def read(self, weight: Weight) -> NDArray[np.floating]:
        """Return the numbers of a weight in its own type, in the shape in which they are used."""
        _, node, use = self._places[weight.name]
        tensor = attribute(node, "value").tensor
        return use.moved(array_of(tensor, where=f"{self._where}: {weight.name}"))

    def replace(self, weight: Weight, new: QuantizedArray | NDArray[np.float16]) -> None:
        """Put int8, Cast and Mul (or float16 and Cast) in the place of a constant."""
        scope, node, use = self._places[weight.name]
        kind = attribute(node, "dtype").type
        with telling_damage(self._where):
            if put_large_weight(scope, use, node.name, new, kind=kind):
                return
            put_weight(scope, use.seen, node.name, new, kind=kind)
            scope.remove(set(use.between))

    def quantized(self) -> int:
        """Return the number of int8 constants of some size."""
        return sum(
            node.op == "Const"
            and attribute(node, "dtype").type == INT8
            and len(attribute(node, "value").tensor.tensor_content) >= _COUNTED_BYTES
            for scope in self._scopes
            for node in scope.nodes
        )

    def _weight(self, scope: Scope, node: Any) -> Weight:
        use = use_of(scope, node)
        name = f"{scope.name}/:/{node.name}" if scope.name else node.name
        self._places[name] = (scope, node, use)
        return Weight(
            name=name,
            use=use.op,
            shape=use.shape,
            dtype=np.dtype(TYPES[attribute(node, "dtype").type]).name,
            axes=use.axes,
        )


class GraphDefFile(GraphWeights):
    """A frozen graph.

    Args:
        path: The file.

    Raises:
        DataError: It is no frozen graph, is damaged, or is larger than protobuf can be.
    """

    format = Format.GRAPHDEF

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > LARGEST_BYTES:
            raise DataError(
                f"`{path.name}` is larger than 2 GB, which a protobuf message cannot be",
                where=str(path),
                hint="give the model as ONNX with external data or as a SavedModel",
            )
        graph = GraphDef()
        try:
            graph.ParseFromString(read_bytes(path, hint="look at the path"))
        except (DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"`{path.name}` is no whole TensorFlow graph: {error}",
                where=str(path),
                hint="copy the file again, or freeze the model anew",
            ) from error
        super().__init__(graph, str(path))

    def save(self, target: Path) -> None:
        """Write the graph."""
        write_atomically(target, self.graph.SerializeToString(deterministic=True))


def _holds_numbers(constant: Any) -> bool:
    """Tell whether a constant of floats is stored number by number.

    One that is filled with a single number takes a few bytes already, whatever its size.
    """
    tensor = attribute(constant, "value").tensor
    if attribute(constant, "dtype").type not in TYPES or tensor.dtype not in TYPES:
        return False
    listed = len(tensor.float_val) + len(tensor.double_val) + len(tensor.half_val)
    size = math.prod(dim.size for dim in tensor.tensor_shape.dim)
    return bool(tensor.tensor_content) or 2 * listed > size


def array_of(tensor: Any, *, where: str) -> NDArray[np.floating]:
    """Return the numbers of a TensorProto.

    Raises:
        DataError: Their count does not fit the shape.
    """
    kind = np.dtype(TYPES[tensor.dtype])
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    size = math.prod(shape) if min(shape, default=0) >= 0 else -1
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
