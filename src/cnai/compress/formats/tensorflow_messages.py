"""The protobuf messages of TensorFlow graphs that we read and write, without TensorFlow.

Only the fields that matter here are named; protobuf keeps the others as they are. The messages live
in a pool of their own, so that a TensorFlow in the same process, which registers messages of the
same names, does not clash. Source: the numbers and names of tensorflow/core/framework/*.proto and
tensorflow/core/protobuf/{meta_graph,saved_model,tensor_bundle}.proto.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "tensorflow"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
    "fixed32": _Field.TYPE_FIXED32,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}

# `*` marks a repeated field, `{}` a map from strings to values of that kind, `|` one of several
# alternatives: such a field is written also when it is zero or false.
_MESSAGES = {
    "TensorShapeDim": "size:int64=1",
    "TensorShapeProto": "dim:*TensorShapeDim=2 unknown_rank:bool=3",
    "TensorProto": (
        "dtype:int32=1 tensor_shape:TensorShapeProto=2 tensor_content:bytes=4 float_val:*float=5 "
        "double_val:*double=6 int_val:*int32=7 string_val:*bytes=8 int64_val:*int64=10 "
        "half_val:*int32=13"
    ),
    "ListValue": (
        "s:*bytes=2 i:*int64=3 f:*float=4 b:*bool=5 type:*int32=6 shape:*TensorShapeProto=7 "
        "tensor:*TensorProto=8 func:*NameAttrList=9"
    ),
    "NameAttrList": "name:string=1 attr:{}AttrValue=2",
    "AttrValue": (
        "list:|ListValue=1 s:|bytes=2 i:|int64=3 f:|float=4 b:|bool=5 type:|int32=6 "
        "shape:|TensorShapeProto=7 tensor:|TensorProto=8 placeholder:|string=9 "
        "func:|NameAttrList=10"
    ),
    "NodeDef": "name:string=1 op:string=2 input:*string=3 device:string=4 attr:{}AttrValue=5",
    "ArgDef": "name:string=1 type:int32=3 type_attr:string=4 number_attr:string=5",
    "OpDef": "name:string=1 input_arg:*ArgDef=2 output_arg:*ArgDef=3",
    "FunctionDef": (
        "signature:OpDef=1 node_def:*NodeDef=3 ret:{}string=4 attr:{}AttrValue=5 "
        "control_ret:{}string=6 arg_attr:*bytes=7 resource_arg_unique_id:*bytes=8"
    ),
    "FunctionDefLibrary": "function:*FunctionDef=1 gradient:*bytes=2",
    "VersionDef": "producer:int32=1 min_consumer:int32=2",
    "GraphDef": "node:*NodeDef=1 library:FunctionDefLibrary=2 versions:VersionDef=4",
    "TensorInfo": "name:|string=1 dtype:int32=2 tensor_shape:TensorShapeProto=3",
    "SignatureDef": "inputs:{}TensorInfo=1 outputs:{}TensorInfo=2 method_name:string=3",
    "NodeList": "value:*string=1",
    "CollectionDef": "node_list:|NodeList=1",
    "AssetFileDef": "tensor_info:TensorInfo=1 filename:string=2",
    "MetaInfoDef": "tags:*string=4",
    "MetaGraphDef": (
        "meta_info_def:MetaInfoDef=1 graph_def:GraphDef=2 saver_def:bytes=3 "
        "collection_def:{}CollectionDef=4 signature_def:{}SignatureDef=5 "
        "asset_file_def:*AssetFileDef=6 object_graph_def:bytes=7"
    ),
    "TensorSliceExtent": "start:int64=1 length:|int64=2",
    "TensorSliceProto": "extent:*TensorSliceExtent=1",
    "BundleEntryProto": (
        "dtype:int32=1 shape:TensorShapeProto=2 shard_id:int32=3 offset:int64=4 size:int64=5 "
        "crc32c:fixed32=6 slices:*TensorSliceProto=7"
    ),
    "BundleHeaderProto": "num_shards:int32=1 endianness:int32=2",
    "SavedModel": "saved_model_schema_version:int64=1 meta_graphs:*MetaGraphDef=2",
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="cnai/tensorflow.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            label, _, rest = field.partition(":")
            kind, _, number = rest.partition("=")
            _add_field(message, label, kind, int(number))
    return file


def _add_field(message: Any, name: str, kind: str, number: int) -> None:
    repeated = kind.startswith(("*", "{}"))
    field = message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
    )
    plain = kind.lstrip("*{}|")
    if kind.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0
    if kind.startswith("{}"):
        _add_map(message, field, name, plain)
    elif plain in _SCALARS:
        field.type = _SCALARS[plain]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{plain}"


def _add_map(message: Any, field: Any, name: str, value: str) -> None:
    """A map is a repeated message of key and value, marked as such."""
    entry = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    nested = message.nested_type.add(name=entry)
    nested.options.map_entry = True
    nested.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _add_field(nested, "value", value, 2)
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{entry}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
AttrValue: Any = _CLASSES["AttrValue"]
GraphDef: Any = _CLASSES["GraphDef"]
NodeDef: Any = _CLASSES["NodeDef"]
SavedModel: Any = _CLASSES["SavedModel"]
TensorProto: Any = _CLASSES["TensorProto"]

FunctionDef: Any = _CLASSES["FunctionDef"]
BundleEntry: Any = _CLASSES["BundleEntryProto"]
BundleHeader: Any = _CLASSES["BundleHeaderProto"]

FLOAT, DOUBLE, INT32, INT8, INT64, BFLOAT16, HALF, RESOURCE = 1, 2, 3, 6, 9, 14, 19, 20
"""Numbers of TensorFlow's types (tensorflow/core/framework/types.proto)."""
