"""Writes dynamic INT8 into an ONNX model: inputs of products are rounded as they come.

Only for products with weights. A convolution has no fast kernel for it and becomes 2 to 8 times
slower, so none is ever written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnai.compress.channels import quantize_channels
from cnai.compress.onnx_int8.selection import View, attribute, static_nodes, weight_of


def dynamic_nodes(model: Any, *, skip: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of products whose inputs can be rounded as they come."""
    kinds = {node.name: node.op_type for node in model.graph.node}
    return tuple(name for name in static_nodes(model, skip=skip) if kinds[name] != "Conv")


def write_dynamic(model: Any, nodes: Collection[str]) -> Any:
    """Return a copy of the model in which the named products compute in INT8."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    view = View.of(graph)
    rounded: dict[str, tuple[str, str, str]] = {}
    new: list[Any] = []
    for node in graph.node:
        name = weight_of(view, node) if node.name in nodes else None
        if name is None:
            new.append(node)
            continue
        if node.input[0] not in rounded:
            rounded[node.input[0]] = _names(node.input[0])
            new.append(
                helper.make_node(
                    "DynamicQuantizeLinear", [node.input[0]], list(rounded[node.input[0]])
                )
            )
        new += _product(graph, view, node, rounded[node.input[0]])
    del graph.node[:]
    graph.node.extend(new)
    _drop_unused(graph)
    return copy


def _names(name: str) -> tuple[str, str, str]:
    return f"{name}_dynamic", f"{name}_dynamic_scale", f"{name}_dynamic_zero"


def _product(graph: Any, view: View, node: Any, entry: tuple[str, str, str]) -> list[Any]:
    """Return the nodes that compute one product, named after it."""
    values = numpy_helper.to_array(view.constants[node.input[1]])
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        values = values.T
    whole = quantize_channels(values, (1,))
    begin, end = f"{node.name}_dynamic", node.output[0]
    _add(graph, f"{begin}_weight", np.ascontiguousarray(whole.values))
    _add(graph, f"{begin}_scale", whole.scale.reshape(-1))
    _add(graph, f"{begin}_zero", np.zeros((), np.int8))
    bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
    product = f"{begin}_product" if bias else end
    operands = [entry[0], f"{begin}_weight", entry[2], f"{begin}_zero"]
    made = [
        helper.make_node("MatMulInteger", operands, [f"{begin}_whole"]),
        helper.make_node("Cast", [f"{begin}_whole"], [f"{begin}_float"], to=1),
        helper.make_node("Mul", [entry[1], f"{begin}_scale"], [f"{begin}_scales"]),
        helper.make_node("Mul", [f"{begin}_float", f"{begin}_scales"], [product]),
    ]
    if bias:
        made.append(helper.make_node("Add", [product, bias], [end]))
    return made


def _add(graph: Any, name: str, values: Any) -> None:
    graph.initializer.append(numpy_helper.from_array(values, name))


def _drop_unused(graph: Any) -> None:
    read = {name for node in graph.node for name in node.input}
    read |= {one.name for one in graph.output}
    kept = [one for one in graph.initializer if one.name in read]
    gone = {one.name for one in graph.initializer} - read
    inputs = [one for one in graph.input if one.name not in gone]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.input[:]
    graph.input.extend(inputs)
