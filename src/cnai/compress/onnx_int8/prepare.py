"""Brings an ONNX model into the form that INT8 arithmetic can be written into.

Scales a channel need opset 13; weights must be initializers; a normalisation after a convolution
belongs into its weights; nodes need names of their own. ONNX Runtime's basic rewriting does the
folding where it can; where it refuses, what we do ourselves is enough to go on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, TensorProto, helper, numpy_helper, version_converter

from cnai.core.errors import RunError

NEEDED_OPSET = 13
_LIFTED_OPSET = 17
_LARGEST_BYTES = 1_500_000_000
_MOST_GROWTH = 1.05
_FATAL = 4


def prepare(path: Path) -> Any:
    """Return the model, ready for `write_static` and `write_dynamic`.

    Raises:
        RunError: It cannot be brought into that form; the message says why.
    """
    model = onnx.load(str(path))
    if model.ByteSize() > _LARGEST_BYTES:
        raise _refusal(path, "it is larger than 1.5 GB")
    if _half_floats(model):
        raise _refusal(path, "its weights are 16-bit floats")
    model = _lifted(path, model)
    _constants_to_initializers(model.graph)
    model = _rewritten(model)
    _constants_to_initializers(model.graph)
    _name_nodes(model.graph)
    return model


def opset_of(model: Any) -> int:
    """Return the version of the standard operators."""
    return int(max(one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}))


def _half_floats(model: Any) -> bool:
    kinds = {TensorProto.FLOAT16, TensorProto.BFLOAT16}
    return any(one.data_type in kinds and len(one.dims) > 1 for one in model.graph.initializer)


def _lifted(path: Path, model: Any) -> Any:
    if opset_of(model) >= NEEDED_OPSET:
        return model
    try:
        return version_converter.convert_version(model, _LIFTED_OPSET)
    except Exception as error:  # the converter's errors have no common class
        raise _refusal(path, f"its opset {opset_of(model)} cannot be lifted: {error}") from error


def _constants_to_initializers(graph: Any) -> None:
    """Turn Constant nodes into initializers, but for those that are outputs of the graph."""
    ends = {one.name for one in graph.output}
    kept = []
    for node in graph.node:
        value = _constant_tensor(node)
        if value is None or node.output[0] in ends:
            kept.append(node)
            continue
        value.name = node.output[0]
        graph.initializer.append(value)
    del graph.node[:]
    graph.node.extend(kept)


def _constant_tensor(node: Any) -> Any:
    """Return the dense tensor of a Constant node, else None."""
    if node.op_type != "Constant" or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        tensor = TensorProto()
        tensor.CopyFrom(attribute.t)
        return tensor
    if attribute.type in {AttributeProto.FLOAT, AttributeProto.INT}:
        value = helper.get_attribute_value(attribute)
        kind = "float32" if attribute.type == AttributeProto.FLOAT else "int64"
        return numpy_helper.from_array(np.array(value, kind))
    if attribute.type in {AttributeProto.FLOATS, AttributeProto.INTS}:
        value = list(helper.get_attribute_value(attribute))
        kind = "float32" if attribute.type == AttributeProto.FLOATS else "int64"
        return numpy_helper.from_array(np.array(value, kind))
    return None


def _rewritten(model: Any) -> Any:
    """Let ONNX Runtime fold what is constant and fuse normalisations; the model as it was if not.

    Only its basic level is used: what comes out has standard operators alone. A model that folding
    makes larger is left as it was.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = _FATAL
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "rewritten.onnx"
        options.optimized_model_filepath = str(target)
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            new = onnx.load(str(target))
        except Exception:  # noqa: BLE001 - it refuses models in many ways; ours goes on without it
            return model
    if new.ByteSize() > _MOST_GROWTH * model.ByteSize():
        return model
    del new.metadata_props[:]
    new.metadata_props.extend(model.metadata_props)
    return new


def _name_nodes(graph: Any) -> None:
    """Give every node a name of its own; groups and reports are named by it."""
    seen: set[str] = set()
    for number, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{number}"
        while name in seen:
            name = f"{name}_{number}"
        node.name = name
        seen.add(name)


def _refusal(path: Path, why: str) -> RunError:
    return RunError(
        f"INT8 arithmetic is not possible in `{path.name}`: {why}",
        where=str(path),
        hint="weight-only INT8 is, with `--mode weight-only`",
    )
