"""Finds what a constant of a TensorFlow graph is used for, and in which shape it is seen there.

Keras stores the weights of attention as (inputs, heads, size) and reshapes them to a matrix before
the product. Their output channels are those of the matrix, so that is what gets quantized.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cnai.compress.formats.graph_scope import (
    Scope,
    attribute,
    called_with,
    shape_of,
    whole_numbers,
)

_PASS = {"Identity", "Enter", "RefEnter", "StopGradient", "Snapshot", "ReadVariableOp", "Cast"}
_MOVES = {"Reshape", "ExpandDims", "Transpose"}
_RESHAPE = _MOVES | {"Squeeze", "Pad", "SpaceToBatchND"}
_SAME = {"Identity", "StopGradient", "Snapshot"}


@dataclass(frozen=True, slots=True)
class Move:
    """A reshape, transpose or added axis with constant numbers."""

    op: str
    numbers: tuple[int, ...]

    def shape(self, before: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape afterwards; None when it is not possible."""
        if self.op == "Transpose":
            possible = sorted(self.numbers) == list(range(len(before)))
            return tuple(before[axis] for axis in self.numbers) if possible else None
        if self.op == "ExpandDims":
            axis = self.numbers[0] if self.numbers else 0
            axis += len(before) + 1 if axis < 0 else 0
            return (*before[:axis], 1, *before[axis:]) if 0 <= axis <= len(before) else None
        return _reshaped(self.numbers, math.prod(before))

    def apply(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers afterwards."""
        if self.op == "Transpose":
            return np.transpose(values, self.numbers)
        return values.reshape(self.shape(values.shape) or values.shape)


def _reshaped(numbers: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    """Return a shape with its one -1 filled in."""
    known = math.prod(one for one in numbers if one != -1)
    if numbers.count(-1) > 1 or any(one < -1 for one in numbers):
        return None
    if -1 in numbers:
        if known <= 0 or size % known:
            return None
        return tuple(size // known if one == -1 else one for one in numbers)
    return numbers if known == size else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a constant is used.

    Attributes:
        op: The operation that uses it as weights; empty when none does.
        axes: Axes of output channels in the shape that the operation sees; None = not known.
        seen: The node that the operation sees in its place: the constant, or its last reshape.
        moves: What turns the constant into what is seen.
        between: Names of the nodes that nobody needs once `seen` holds the numbers itself.
        users: All operations that read it, with the number of the input; empty when one of them
            does not use it as weights.
    """

    op: str
    axes: tuple[int, ...] | None
    seen: Any
    shape: tuple[int, ...]
    moves: tuple[Move, ...] = ()
    between: frozenset[str] = frozenset()
    users: tuple[tuple[Any, int], ...] = ()

    def moved(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the constant in the shape in which it is seen."""
        for move in self.moves:
            values = move.apply(values)
        return values


def use_of(scope: Scope, constant: Any) -> Use:
    """Follow a constant to the operation that uses it as weights."""
    shape = shape_of(constant)
    waiting: list[tuple[Scope, str, tuple[Any, ...]]] = [(scope, constant.name, (constant,))]
    seen = {(scope.name, constant.name)}
    while waiting:
        place, name, path = waiting.pop(0)
        for node, index in place.consumers.get(name, ()):
            if channel_axes(node, index, len(shape)) is not None:
                if place is scope:
                    return _found(scope, path, shape, node, index)
                return _found_inside(path, shape, node, index)
            following = [(place, node.name)] if node.op in _PASS | _RESHAPE and index == 0 else []
            for inner, one in following or called_with(place, node, index):
                if (inner.name, one) not in seen:
                    seen.add((inner.name, one))
                    waiting.append((inner, one, (*path, node)))
    return Use(op="", axes=None, seen=constant, shape=shape)


def _found_inside(path: tuple[Any, ...], shape: tuple[int, ...], node: Any, at: int) -> Use:
    """Describe the use of a constant by a function that it is passed to."""
    reshaped = any(one.op in _RESHAPE for one in path)
    return Use(
        op=node.op,
        axes=None if reshaped else _within(channel_axes(node, at, len(shape)), shape),
        seen=path[0],
        shape=shape,
    )


def _found(scope: Scope, path: tuple[Any, ...], shape: tuple[int, ...], node: Any, at: int) -> Use:
    reshapes = [place for place, one in enumerate(path) if one.op in _RESHAPE]
    if not reshapes:
        axes = channel_axes(node, at, len(shape))
        users = _users(scope, path[0])
        return Use(
            op=node.op, axes=_within(axes, shape), seen=path[0], shape=shape, users=users,
        )  # fmt: skip
    upto = path[: reshapes[-1] + 1]
    followed = _moves(scope, upto, shape)
    if followed is None:
        return Use(op=node.op, axes=None, seen=path[0], shape=shape)
    moves, now = followed
    return Use(
        op=node.op,
        axes=_within(channel_axes(node, at, len(now)), now),
        seen=upto[-1],
        shape=now,
        moves=moves,
        between=frozenset(one.name for one in upto[:-1]),
        users=_users(scope, upto[-1]),
    )


def _within(axes: tuple[int, ...] | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return axes if axes is not None and all(axis < len(shape) for axis in axes) else None


def _moves(
    scope: Scope, path: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[tuple[Move, ...], tuple[int, ...]] | None:
    """Return what the nodes of a path do to a constant, and its shape then.

    Returns:
        None unless they serve this constant alone, with numbers that are constants too.
    """
    for one in path[:-1]:
        if len(scope.consumers.get(one.name, ())) != 1:
            return None
    moves: list[Move] = []
    for one in path[1:]:
        if one.op in _SAME:
            continue
        numbers = _numbers_of(scope, one)
        if numbers is None:
            return None
        moves.append(Move(one.op, numbers))
        after = moves[-1].shape(shape)
        if after is None:
            return None
        shape = after
    return tuple(moves), shape


def _numbers_of(scope: Scope, node: Any) -> tuple[int, ...] | None:
    known = node.op in _MOVES and len(node.input) >= 2
    return whole_numbers(scope, node.input[1]) if known else None


def _users(scope: Scope, seen: Any) -> tuple[tuple[Any, int], ...]:
    """Return all that read a node as weights; nothing when somebody reads it otherwise."""
    users: list[tuple[Any, int]] = []
    waiting, known = [seen.name], {seen.name}
    while waiting:
        for node, index in scope.consumers.get(waiting.pop(), ()):
            if node.op in _SAME and node.name not in known:
                known.add(node.name)
                waiting.append(node.name)
            elif channel_axes(node, index, 2) is not None:
                users.append((node, index))
            else:
                return ()
    return tuple(users)


_CONVOLUTIONS = {"Conv2D": (3,), "Conv3D": (4,), "DepthwiseConv2dNative": (2, 3)}
_BACKWARD = {"Conv2DBackpropInput": (1, (2,)), "Conv3DBackpropInputV2": (1, (3,))}
_LOOKUPS = ("Gather", "GatherV2", "ResourceGather", "SparseSegment", "EmbeddingLookup")
PRODUCTS = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}


def channel_axes(node: Any, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the output channels' axes of an operand; None when it is no operand of weights."""
    if node.op in _CONVOLUTIONS:
        return _CONVOLUTIONS[node.op] if index == 1 else None
    if node.op in _BACKWARD:
        at, axes = _BACKWARD[node.op]
        return axes if index == at else None
    if node.op in PRODUCTS and rank >= 2 and index <= 1:
        summed = rank - 1 if (index == 0) != is_transposed(node, index) else rank - 2
        return tuple(axis for axis in range(rank) if axis != summed)
    if node.op == "Einsum":
        return _einsum_axes(attribute(node, "equation").s.decode("ascii", "replace"), index, rank)
    if node.op.startswith(_LOOKUPS):
        return (0,) if index == 0 else None
    return None


def _einsum_axes(equation: str, index: int, rank: int) -> tuple[int, ...] | None:
    """Return the axes of an operand that stay in the result."""
    read, arrow, result = equation.replace(" ", "").partition("->")
    letters = [*read.split(","), "", ""][index]
    if not arrow or "." in letters or len(letters) != rank:
        return None
    stay = tuple(axis for axis, letter in enumerate(letters) if letter in result)
    return stay if len(stay) < rank else None


def is_transposed(node: Any, index: int) -> bool:
    """Tell whether a product reads an operand with its last two axes exchanged."""
    flag = "transpose_" + "ab"[index] if node.op == "MatMul" else "adj_" + "xy"[index]
    return bool(attribute(node, flag).b)
