"""Large weights of a TensorFlow graph, so that TensorFlow folds them at load like small ones.

TensorFlow folds constants of up to 10 MB; a larger weight would be turned back into floats in each
run. A product is therefore split over its output channels into several whose results are
concatenated, which changes no number; of a table the INT8 rows are looked up and then scaled.
Source: `kDefaultMaxConstantSizeInBytes` in tensorflow/core/common_runtime/constant_folding.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.channels import QuantizedArray
from cnai.compress.formats.graph_scope import TYPES, Scope, attribute, whole_numbers
from cnai.compress.formats.graph_use import PRODUCTS, Use, is_transposed
from cnai.compress.formats.tensorflow_messages import HALF, INT8, INT32

LARGEST_FOLDED = 9 * 2**20
"""A little below TensorFlow's 10 MB, since the message around the numbers counts too."""

New = QuantizedArray | NDArray[np.float16]


def put_weight(scope: Scope, node: Any, name: str, new: New, *, kind: int) -> None:
    """Turn a node into a smaller weight that is turned back into floats under its name.

    Args:
        name: Prefix of the nodes to add.
        kind: TensorFlow's number of the type that the users expect.
        node: It may be the constant itself or an operation on it.
    """
    like = scope.by_name.get(name, node)
    if isinstance(new, QuantizedArray):
        floats = scope.add(f"{name}/cast", "Cast", like)
        scale = scope.constant(f"{name}/scale", new.scale.astype(TYPES[kind]), kind, like)
        stored = scope.constant(f"{name}/int8", new.values, INT8, like)
        scope.become(floats, "Cast", [scope.ref(stored)], SrcT=INT8, DstT=kind)
        scope.become(node, "Mul", [scope.ref(floats), scope.ref(scale)], T=kind)
    else:
        stored = scope.constant(f"{name}/float16", new, HALF, like)
        scope.become(node, "Cast", [scope.ref(stored)], SrcT=HALF, DstT=kind)


def put_large_weight(scope: Scope, use: Use, name: str, new: New, *, kind: int) -> bool:
    """Replace a weight that TensorFlow would not fold whole.

    Returns:
        False where the graph does not allow it; then nothing has changed.
    """
    values = new.values if isinstance(new, QuantizedArray) else new
    size = values.size * np.dtype(TYPES[kind]).itemsize
    if size <= LARGEST_FOLDED or not use.users:
        return False
    if all(_is_lookup_of_rows(scope, node, index) for node, index in use.users):
        if isinstance(new, QuantizedArray) and use.axes != (0,):
            return False
        _look_up_first(scope, use, name, new, kind)
    else:
        axes = {_output_axis(node, index, values.ndim) for node, index in use.users}
        axis = axes.pop()
        if axes or axis is None:
            return False
        count = -(-size // LARGEST_FOLDED)
        if values.shape[axis] < count:
            return False
        parts = _parts(new, axis, count)
        _multiply_in_parts(scope, use, name, parts, kind)
    scope.remove({use.seen.name, *use.between, *_passed(scope, use)})
    return True


def _passed(scope: Scope, use: Use) -> set[str]:
    """Return the identities between the weight and its users, which lead nowhere now."""
    users = {node.name for node, _ in use.users}
    found, waiting = set[str](), [use.seen.name]
    while waiting:
        for node, _ in scope.consumers.get(waiting.pop(), ()):
            if node.name not in users | found:
                found.add(node.name)
                waiting.append(node.name)
    return found


def _output_axis(node: Any, index: int, rank: int) -> int | None:
    """Return the axis of a weight that becomes the last (or the channel's) axis of the result."""
    if index != 1:
        return None
    if node.op in PRODUCTS:
        return rank - 2 if is_transposed(node, index) else rank - 1
    return rank - 1 if node.op in {"Conv2D", "Conv3D"} else None


def _parts(new: New, axis: int, count: int) -> list[New]:
    if not isinstance(new, QuantizedArray):
        return list(np.array_split(new, count, axis))
    values = np.array_split(new.values, count, axis)
    if new.scale.shape[axis] == 1:
        return [QuantizedArray(values=one, scale=new.scale) for one in values]
    scales = np.array_split(new.scale, count, axis)
    return [
        QuantizedArray(values=one, scale=scale) for one, scale in zip(values, scales, strict=True)
    ]


def _multiply_in_parts(scope: Scope, use: Use, name: str, parts: list[New], kind: int) -> None:
    weights = []
    for number, part in enumerate(parts):
        weight = scope.add(f"{name}/part{number}", "NoOp", use.seen)
        put_weight(scope, weight, weight.name, part, kind=kind)
        weights.append(weight)
    for user, index in use.users:
        axis = scope.constant(
            f"{user.name}/axis", np.array(_joined_axis(user), np.int32), INT32, user
        )
        del axis.input[:]
        products = []
        for number, weight in enumerate(weights):
            product = scope.copy(f"{user.name}/part{number}", user)
            product.input[index] = scope.ref(weight)
            products.append(scope.ref(product))
        scope.become(user, "ConcatV2", [*products, scope.ref(axis)], T=kind, Tidx=INT32)
        user.attr["N"].i = len(products)


def _joined_axis(user: Any) -> int:
    return 1 if attribute(user, "data_format").s in {b"NCHW", b"NCDHW"} else -1


def _is_lookup_of_rows(scope: Scope, node: Any, index: int) -> bool:
    if index != 0 or node.op not in {"Gather", "GatherV2"}:
        return False
    if node.op == "GatherV2":
        return whole_numbers(scope, node.input[2]) == (0,) and attribute(node, "batch_dims").i == 0
    return True


def _look_up_first(scope: Scope, use: Use, name: str, new: New, kind: int) -> None:
    """Look up rows as they are stored, and turn only those into floats."""
    like = scope.by_name.get(name, use.seen)
    if not isinstance(new, QuantizedArray):
        stored = scope.constant(f"{name}/float16", new, HALF, like)
        for user, _ in use.users:
            rows = _rows(scope, user, stored, "float16", HALF)
            scope.become(user, "Cast", [scope.ref(rows)], SrcT=HALF, DstT=kind)
        return
    stored = scope.constant(f"{name}/int8", new.values, INT8, like)
    scale = scope.constant(f"{name}/scale", new.scale.astype(TYPES[kind]), kind, like)
    for user, _ in use.users:
        rows = _rows(scope, user, stored, "int8", INT8)
        scales = _rows(scope, user, scale, "scale", kind)
        floats = scope.add(f"{user.name}/cast", "Cast", user, before=user)
        scope.become(floats, "Cast", [scope.ref(rows)], SrcT=INT8, DstT=kind)
        scope.become(user, "Mul", [scope.ref(floats), scope.ref(scales)], T=kind)


def _rows(scope: Scope, user: Any, table: Any, word: str, kind: int) -> Any:
    rows = scope.copy(f"{user.name}/{word}", user)
    rows.input[0] = scope.ref(table)
    rows.attr["Tparams"].type = kind
    return rows
