"""Small graphs to compress: a TensorFlow graph by our own messages and ONNX models by onnx."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cnai.compress.formats.tensorflow_messages import FLOAT, GraphDef


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def constant(graph, name: str, values: np.ndarray, kind: int = FLOAT):
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = kind
    tensor = node.attr["value"].tensor
    tensor.dtype = kind
    for size in values.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = values.tobytes()
    return node


def node(graph, name: str, op: str, *inputs: str, **flags: bool):
    added = graph.node.add(name=name, op=op, input=inputs)
    added.attr["T"].type = FLOAT
    for key, value in flags.items():
        added.attr[key].b = value
    return added


def perceptron(weight: np.ndarray | None = None):
    """Return x @ weight + bias as a GraphDef."""
    weight = numbers(64, 32) if weight is None else weight
    graph = GraphDef()
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = FLOAT
    constant(graph, "weight", weight)
    constant(graph, "bias", numbers(weight.shape[1]))
    node(graph, "read", "Identity", "weight")
    node(graph, "product", "MatMul", "x", "read", transpose_a=False, transpose_b=False)
    node(graph, "y", "BiasAdd", "product", "bias")
    return graph


def saved(graph, path: Path) -> Path:
    path.write_bytes(graph.SerializeToString())
    return path


def onnx_model(
    nodes, constants: dict[str, np.ndarray], *, opset: int = 17, inputs=None
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def onnx_perceptron(opset: int = 17) -> onnx.ModelProto:
    return onnx_model(
        [
            helper.make_node("MatMul", ["x", "weight"], ["h"]),
            helper.make_node("Add", ["h", "bias"], ["y"]),
        ],
        {"weight": numbers(64, 32), "bias": numbers(32)},
        opset=opset,
    )
