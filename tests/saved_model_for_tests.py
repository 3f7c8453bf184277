"""SavedModels to compress, written without TensorFlow: their graph and their checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cnai.compress.formats.crc32c import crc32c, masked
from cnai.compress.formats.tensorflow_messages import (
    FLOAT,
    RESOURCE,
    BundleEntry,
    BundleHeader,
    SavedModel,
)

TEXT = 7


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def block(entries: dict[bytes, bytes]) -> bytes:
    body = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value
        for key, value in sorted(entries.items())
    )
    whole = body + bytes(4) + (1).to_bytes(4, "little") + b"\0"
    return whole + masked(crc32c(whole)).to_bytes(4, "little")


def table(entries: dict[bytes, bytes]) -> bytes:
    data = block(entries)
    index = block({b"\xff": varint(0) + varint(len(data) - 5)})
    handles = varint(0) + varint(0) + varint(len(data)) + varint(len(index) - 5)
    return data + index + handles.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def checkpoint(prefix: Path, variables: dict[str, np.ndarray]) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    entries = {b"": BundleHeader(num_shards=1).SerializeToString()}
    data = b""
    for key, values in variables.items():
        content = values.tobytes()
        entry = BundleEntry(dtype=FLOAT, offset=len(data), size=len(content))
        for size in values.shape:
            entry.shape.dim.add(size=size)
        entry.crc32c = masked(crc32c(content))
        entries[key.encode()] = entry.SerializeToString()
        data += content
    prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)
    prefix.with_name(prefix.name + ".index").write_bytes(table(entries))


def handle(graph, name: str) -> None:
    added = graph.node.add(name=name, op="VarHandleOp")
    added.attr["dtype"].type = FLOAT
    added.attr["shared_name"].s = name.encode()


def product(nodes, name: str, x: str, weight: str) -> None:
    added = nodes.add(name=name, op="MatMul", input=[x, weight])
    added.attr["T"].type = FLOAT


def signature(meta, name: str, x: str, y: str) -> None:
    meta.signature_def[name].inputs["x"].name = x
    meta.signature_def[name].outputs["y"].name = y


def old_style(folder: Path, weight: np.ndarray) -> Path:
    """Write y = x @ w with a handle that is read at the top, as TensorFlow 1 does."""
    model = SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.saver_def = b"\x1a\x07restore"
    graph = meta.graph_def
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = FLOAT
    handle(graph, "w")
    graph.node.add(name="read", op="ReadVariableOp", input=["w"]).attr["dtype"].type = FLOAT
    product(graph.node, "y", "x", "read")
    graph.node.add(name="w/Assign", op="AssignVariableOp", input=["w", "x"])
    signature(meta, "serving_default", "x:0", "y:0")
    return written(folder, model, {"w": weight})


def new_style(folder: Path, weight: np.ndarray, *, twice: bool = False) -> Path:
    """Write it with a function that is called with the handle, as TensorFlow 2 does."""
    model = SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.object_graph_def = b"\x0a\x00"
    graph = meta.graph_def
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = FLOAT
    handle(graph, "Variable")
    restore(graph)
    for number in range(2 if twice else 1):
        call = graph.node.add(name=f"y{number}", op="StatefulPartitionedCall")
        call.input.extend(["x", "Variable"])
        call.attr["f"].func.name = "forward"
        call.attr["Tin"].list.type.extend([FLOAT, RESOURCE])
        call.attr["Tout"].list.type.append(FLOAT)
        signature(meta, f"s{number}" if number else "serving_default", "x:0", f"y{number}:0")
    function = graph.library.function.add()
    function.signature.name = "forward"
    function.signature.input_arg.add(name="a", type=FLOAT)
    function.signature.input_arg.add(name="handle", type=RESOURCE)
    function.signature.output_arg.add(name="out", type=FLOAT)
    read = function.node_def.add(name="read", op="ReadVariableOp", input=["handle"])
    read.attr["dtype"].type = FLOAT
    product(function.node_def, "mul", "a", "read:value:0")
    function.ret["out"] = "mul:product:0"
    return written(folder, model, {"layer/kernel": weight})


def restore(graph) -> None:
    """Add what gives the variable the entry `layer/kernel` of the checkpoint."""
    for name, text in (("names", b"layer/kernel"), ("slices", b"")):
        tensor = graph.node.add(name=name, op="Const").attr["value"].tensor
        tensor.dtype = TEXT
        tensor.string_val.append(text)
    graph.node.add(name="prefix", op="Placeholder")
    graph.node.add(name="restore", op="RestoreV2", input=["prefix", "names", "slices"])
    graph.node.add(name="same", op="Identity", input=["restore"])
    graph.node.add(name="assign", op="AssignVariableOp", input=["Variable", "same"])


def written(folder: Path, model, variables: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    checkpoint(folder / "variables" / "variables", variables)
    return folder
