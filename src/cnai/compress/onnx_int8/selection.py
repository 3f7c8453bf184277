"""Which operations of an ONNX model can compute in INT8, and which tensors they touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from onnx import helper

WEIGHTED = frozenset({"Conv", "MatMul", "Gemm"})
FUSED = frozenset({"Relu", "Clip"})
"""Runtimes compute these as part of the convolution before them."""
SAME_RANGE = frozenset(
    {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity"}
)
"""These only move numbers: the scale of their input is that of their output."""
ONE_INPUT = frozenset({"AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "ReduceMean"})
SEVERAL_INPUTS = frozenset({"Add", "Mul", "Concat"})


class OpSet(StrEnum):
    """How much of a model computes in INT8."""

    WEIGHTED = "conv-matmul"
    """Convolutions and products with weights."""
    ALL = "all"
    """What lies between them too, so that numbers are turned back into floats less often."""


@dataclass(slots=True)
class View:
    """A graph with what is looked up in it."""

    graph: Any
    constants: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    consumers: dict[str, list[Any]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Any) -> View:
        """Look a graph up."""
        view = cls(graph, {one.name: one for one in graph.initializer})
        view.outputs = {one.name for one in graph.output}
        for node in graph.node:
            for name in node.output:
                view.sources[name] = node
            for name in node.input:
                view.consumers.setdefault(name, []).append(node)
        return view

    def activation_after(self, node: Any) -> Any:
        """Return the Relu or Clip that alone reads a convolution's result, else None."""
        name = node.output[0]
        readers = self.consumers.get(name, [])
        if node.op_type == "MatMul" or name in self.outputs or len(readers) != 1:
            return None
        reader = readers[0]
        if reader.op_type not in FUSED or reader.input[0] != name:
            return None
        bounds = [one for one in reader.input[1:] if one]
        return reader if all(one in self.constants for one in bounds) else None


def attribute(node: Any, name: str, otherwise: Any) -> Any:
    """Return an attribute of a node, or what it is when it is not there."""
    found = next((one for one in node.attribute if one.name == name), None)
    return otherwise if found is None else helper.get_attribute_value(found)


def static_nodes(model: Any, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of nodes whose weights can be multiplied in INT8, in the graph's order.

    Args:
        skip: Names of constants that must stay floats.
    """
    view, left = View.of(model.graph), set(skip)
    return tuple(
        node.name
        for node in model.graph.node
        if weight_of(view, node) is not None and weight_of(view, node) not in left
    )


def weight_of(view: View, node: Any) -> str | None:
    """Return the name of a node's weight, if it is a constant that INT8 can take the place of."""
    if node.op_type not in WEIGHTED or node.domain not in {"", "ai.onnx"} or len(node.input) < 2:
        return None
    name = node.input[1]
    tensor = view.constants.get(name)
    if tensor is None or tensor.data_type != 1 or node.input[0] in view.constants:
        return None
    rank = len(tensor.dims)
    if node.op_type == "Conv":
        sound = rank in {3, 4, 5} and _bias_fits(view, node)
    elif node.op_type == "MatMul":
        sound = rank == 2
    else:
        plain = attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0
        sound = rank == 2 and plain and not attribute(node, "transA", 0) and _bias_fits(view, node)
    return name if sound else None


def _bias_fits(view: View, node: Any) -> bool:
    """Tell whether a bias is a constant with one number a channel, whatever its rank."""
    if len(node.input) < 3 or not node.input[2]:
        return True
    bias, weight = view.constants.get(node.input[2]), view.constants[node.input[1]]
    if bias is None or bias.data_type != 1:
        return False
    size = 1
    for one in bias.dims:
        size *= one
    channel = 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1
    return bool(size == weight.dims[channel])


def between(model: Any) -> Iterator[Any]:
    """Yield the nodes that only `OpSet.ALL` computes in INT8."""
    view = View.of(model.graph)
    kinds = SAME_RANGE | ONE_INPUT | SEVERAL_INPUTS
    for node in model.graph.node:
        if node.domain not in {"", "ai.onnx"} or len(node.output) != 1:
            continue
        products = node.op_type == "MatMul" and weight_of(view, node) is None
        constant = [one in view.constants for one in node.input]
        if (node.op_type in kinds and not constant[0]) or (products and not any(constant)):
            yield node


def calibrated_tensors(model: Any) -> list[str]:
    """Return the names of all tensors whose range any way of writing INT8 may need."""
    view, names = View.of(model.graph), []
    chosen = [node for node in model.graph.node if weight_of(view, node) is not None]
    for node in chosen:
        names += [node.input[0], node.output[0]]
        after = view.activation_after(node)
        names += [after.output[0]] if after is not None else []
    for node in between(model):
        names += [*node.input, *node.output]
    return [one for one in dict.fromkeys(names) if one and one not in view.constants]
