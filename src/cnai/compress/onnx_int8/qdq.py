"""Writes static INT8 into an ONNX model: QuantizeLinear and DequantizeLinear around operations.

Activations are unsigned with one scale a tensor, weights signed with a scale a channel, biases
32-bit with the product of both. A runtime that knows INT8 kernels fuses each operation with the
nodes around it; another one computes the same numbers step by step.
Source: Jacob et al. 2018, arXiv 1712.05877, section 2; Krishnamoorthi 2018, arXiv 1806.08342.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from cnai.compress.channels import LARGEST
from cnai.compress.onnx_int8.calibrate import Ranges
from cnai.compress.onnx_int8.selection import SAME_RANGE, View, attribute, weight_of

_LEVELS = 255
_LARGEST_BIAS = 2.0**30
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True)
class _Scale:
    """How a tensor becomes unsigned 8-bit numbers: names of its two constants."""

    scale: float
    scale_name: str
    zero_name: str


def write_static(model: Any, ranges: Ranges, nodes: Collection[str]) -> Any:
    """Return a copy of the model in which the named nodes compute in INT8.

    Args:
        model: As `prepare` returns it.
        ranges: Of the tensors around the nodes; a node whose tensors have none stays as it is.
        nodes: Names from `static_nodes` and `between`.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Writer(copy, ranges, nodes).write()
    return copy


@dataclass(slots=True)
class _Writer:
    """One writing into one graph."""

    model: Any
    ranges: Ranges
    nodes: Collection[str]
    view: View = field(init=False)
    scales: dict[str, _Scale] = field(default_factory=dict)
    through: set[str] = field(default_factory=set)
    """Tensors that every reader must take in their rounded form, for the operation to fuse."""
    chosen: list[Any] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look the graph up."""
        self.view = View.of(self.model.graph)

    def write(self) -> None:
        """Choose scales in the order of the flow, then put the nodes in."""
        for node in self.model.graph.node:
            if node.name not in self.nodes:
                continue
            if weight_of(self.view, node) is not None:
                self._choose_weighted(node)
            else:
                self._choose_between(node)
        for node in self.chosen:
            if weight_of(self.view, node) is not None:
                self._round_weight(node)
            else:
                self._round_constants(node)
        self._insert()
        self._drop_unused()

    def _choose_weighted(self, node: Any) -> None:
        after = self.view.activation_after(node)
        end = (after or node).output[0]
        needs_end = node.op_type == "Conv"
        names = [node.input[0], *([end] if needs_end else [])]
        if not all(self._known(name) for name in names):
            return
        for name in names:
            self._scale(name)
        if needs_end:
            self.through.add(end)
        self.chosen.append(node)

    def _choose_between(self, node: Any) -> None:
        begin, end = node.input[0], node.output[0]
        if node.op_type in SAME_RANGE:
            if begin in self.scales and end in self.ranges.ends:
                self.scales[end] = self.scales[begin]
                self.through.add(end)
                self.chosen.append(node)
            return
        floats = [one for one in node.input if self._float(one)]
        if not self._known(end) or not all(self._known(one) for one in floats):
            return
        for name in (*floats, end):
            if name not in self.view.constants:
                self._scale(name)
        self.through.add(end)
        self.chosen.append(node)

    def _float(self, name: str) -> bool:
        tensor = self.view.constants.get(name)
        return bool(name) and (tensor is None or tensor.data_type == onnx.TensorProto.FLOAT)

    def _known(self, name: str) -> bool:
        return name in self.scales or name in self.ranges.ends or name in self.view.constants

    def _scale(self, name: str) -> _Scale:
        if name not in self.scales:
            low, high = self.ranges.ends[name]
            scale, zero = _unsigned(low, high)
            self.scales[name] = _Scale(
                scale,
                self._constant(f"{name}_scale", np.float32(scale)),
                self._constant(f"{name}_zero", np.uint8(zero)),
            )
        return self.scales[name]

    def _constant(self, name: str, values: Any) -> str:
        fresh = name
        while fresh in self.view.constants or fresh in self.view.sources:
            fresh += "_"
        tensor = numpy_helper.from_array(np.asarray(values), fresh)
        self.view.constants[fresh] = tensor
        self.model.graph.initializer.append(tensor)
        return fresh

    def _round_weight(self, node: Any) -> None:
        name = node.input[1]
        values = numpy_helper.to_array(self.view.constants[name])
        transposed = node.op_type == "Gemm" and attribute(node, "transB", 0)
        axis = 0 if node.op_type == "Conv" or transposed else 1
        bias = self._bias(node)
        entry = self.scales[node.input[0]].scale
        rounded, scale = _signed(values, axis, bias, entry)
        node.input[1] = self._restored(f"{name}_{node.name}", rounded, scale, axis)
        if bias is not None:
            both = (scale.astype(np.float64) * entry).astype(np.float32)
            whole = np.rint(bias.astype(np.float64) / both).astype(np.int32)
            node.input[2] = self._restored(f"{node.input[2]}_{node.name}", whole, both, 0)

    def _bias(self, node: Any) -> NDArray[np.float32] | None:
        if len(node.input) < 3 or not node.input[2]:
            return None
        values: NDArray[np.float32] = numpy_helper.to_array(self.view.constants[node.input[2]])
        return values.reshape(-1)

    def _restored(self, name: str, whole: NDArray[Any], scale: Any, axis: int) -> str:
        """Add a rounded constant and the node that turns it back; return the node's output."""
        stored = self._constant(f"{name}_int8", whole)
        factor = self._constant(f"{name}_int8_scale", scale)
        zero = self._constant(f"{name}_int8_zero", np.zeros(np.shape(scale), whole.dtype))
        end = f"{stored}_float"
        node = helper.make_node("DequantizeLinear", [stored, factor, zero], [end], axis=axis)
        self.constants.append(node)
        return end

    def _round_constants(self, node: Any) -> None:
        for index, name in enumerate(node.input):
            tensor = self.view.constants.get(name)
            if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
                continue
            if name not in self.added:
                values = numpy_helper.to_array(tensor)
                scale, zero = _unsigned(float(values.min()), float(values.max()))
                whole = np.clip(np.rint(values / scale) + zero, 0, _LEVELS).astype(np.uint8)
                stored = self._constant(f"{name}_uint8", whole)
                factor = self._constant(f"{name}_uint8_scale", np.float32(scale))
                offset = self._constant(f"{name}_uint8_zero", np.uint8(zero))
                self.added[name] = f"{stored}_float"
                self.constants.append(
                    helper.make_node(
                        "DequantizeLinear", [stored, factor, offset], [self.added[name]]
                    )
                )
            node.input[index] = self.added[name]

    def _insert(self) -> None:
        """List the graph anew, with a pair of nodes behind each tensor that is rounded."""
        graph = self.model.graph
        old = list(graph.node)
        names = {node.name for node in self.chosen}
        rounded = {name: self._free(f"{name}_rounded") for name in self.scales}
        for node in old:
            for index, name in enumerate(node.input):
                wanted = name in self.through or node.name in names
                if name in self.scales and name not in self.view.outputs and wanted:
                    node.input[index] = rounded[name]
        new = [*self.constants]
        for name in [one.name for one in graph.input if one.name in self.scales]:
            new += self._pair(name, name, rounded[name])
        for node in old:
            new.append(node)
            for index, name in enumerate(node.output):
                if name not in self.scales:
                    continue
                if name in self.view.outputs:
                    # What is given out keeps its name, and is what the others read.
                    exact = self._free(f"{name}_exact")
                    node.output[index] = exact
                    new += self._pair(name, exact, name)
                else:
                    new += self._pair(name, name, rounded[name])
        del graph.node[:]
        graph.node.extend(new)

    def _free(self, name: str) -> str:
        while name in self.view.sources or name in self.view.constants:
            name += "_"
        return name

    def _pair(self, name: str, begin: str, end: str) -> list[Any]:
        one = self.scales[name]
        whole = self._free(f"{name}_uint8_values")
        constants = [one.scale_name, one.zero_name]
        return [
            helper.make_node("QuantizeLinear", [begin, *constants], [whole]),
            helper.make_node("DequantizeLinear", [whole, *constants], [end]),
        ]

    def _drop_unused(self) -> None:
        """Remove float constants that nothing reads any more."""
        graph = self.model.graph
        read = {name for node in graph.node for name in node.input} | self.view.outputs
        read |= _read_inside(graph)
        kept = [one for one in graph.initializer if one.name in read]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        present = {one.name for one in kept}
        dropped = set(self.view.constants) - present
        inputs = [one for one in graph.input if one.name not in dropped]
        del graph.input[:]
        graph.input.extend(inputs)
        # Types told for tensors that are others now would contradict the graph.
        del graph.value_info[:]


def _read_inside(graph: Any) -> set[str]:
    """Return the names that the graphs inside of nodes read."""
    found: set[str] = set()
    for node in graph.node:
        for one in node.attribute:
            for inner in ([one.g] if one.HasField("g") else []) + list(one.graphs):
                found |= {name for each in inner.node for name in each.input}
                found |= {each.name for each in inner.output} | _read_inside(inner)
    return found


def _unsigned(low: float, high: float) -> tuple[float, int]:
    """Return scale and zero point so that zero is exact and both ends are held."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / _LEVELS
    if scale < _SMALLEST_SCALE:
        return 1.0, 0
    scale = float(np.float32(scale))
    return scale, int(np.clip(round(-low / scale), 0, _LEVELS))


def _signed(
    values: NDArray[np.float32], axis: int, bias: NDArray[np.float32] | None, entry: float
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Round a weight with a scale a channel, wide enough for the bias to be held in 32 bits."""
    inner = tuple(one for one in range(values.ndim) if one != axis)
    scale = np.abs(values).max(axis=inner) / np.float32(LARGEST)
    if bias is not None:
        scale = np.maximum(scale, np.abs(bias) / np.float32(entry * _LARGEST_BIAS))
    scale = np.where(scale < _SMALLEST_SCALE, np.float32(1), scale).astype(np.float32)
    shape = [1] * values.ndim
    shape[axis] = -1
    whole = np.clip(np.rint(values / scale.reshape(shape)), -LARGEST, LARGEST).astype(np.int8)
    return whole, scale
