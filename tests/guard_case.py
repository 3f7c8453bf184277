"""Small models and stand-ins for runtimes, to try the guard on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from cnai.compress.runners import InputSpec
from graphs_for_tests import numbers, onnx_model, saved

ROWS = InputSpec(name="x", shape=(None, 4), dtype="float32")


class FakeRunner:
    """A model that is a function of `x`; its time passes on a fake clock."""

    def __init__(
        self,
        function: Callable[[np.ndarray], np.ndarray] = lambda x: x,
        *,
        outputs: tuple[str, ...] = ("y",),
        tick: Callable[[], None] = lambda: None,
        inputs: tuple[InputSpec, ...] = (ROWS,),
    ) -> None:
        self.runtime = "fake 1"
        self.inputs = inputs
        self.outputs = outputs
        self._function, self._tick = function, tick

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        self._tick()
        return [self._function(feeds["x"])]


def layer(name: str, before: str, after: str, size: int = 64, seed: int = 0):
    """Return the nodes and constants of a product, a bias and a Relu."""
    nodes = [
        helper.make_node("Gemm", [before, f"{name}_w", f"{name}_b"], [f"{name}_h"], name=name),
        helper.make_node("Relu", [f"{name}_h"], [after], name=f"{name}_relu"),
    ]
    weight = numbers(size, size, seed=seed) / np.float32(np.sqrt(size))
    return nodes, {f"{name}_w": weight, f"{name}_b": numbers(size, seed=seed + 50) / 10}


def classifier(*, ruined: bool = False) -> onnx.ModelProto:
    """Return a classifier of 64 numbers into 8 classes.

    Args:
        ruined: Whether the middle layer's input holds one huge number among small ones, which a
            single scale for the tensor cannot hold; floats do.
    """
    first, one = layer("first", "x", "a", seed=1)
    middle, two = layer("middle", "wide" if ruined else "a", "b", seed=2)
    nodes, constants = [*first], {**one, **two}
    if ruined:
        constants["huge"] = np.ones(64, np.float32)
        constants["huge"][0] = 1e5
        constants["middle_w"][0] /= 1e5
        nodes.append(helper.make_node("Mul", ["a", "huge"], ["wide"], name="widen"))
    constants["last_w"] = numbers(64, 8, seed=3) / 2
    nodes += [
        *middle,
        helper.make_node("MatMul", ["b", "last_w"], ["scores"], name="last"),
        helper.make_node("Softmax", ["scores"], ["y"], name="softmax", axis=-1),
    ]
    return onnx_model(nodes, constants)


def convolution(opset: int = 17, *, constants_as_nodes: bool = False) -> onnx.ModelProto:
    """Return a convolution, a Relu, a pooling and a product of images of 3 x 8 x 8."""
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "weight"], ["y"]),
    ]
    constants = {
        "kernel": numbers(16, 3, 3, 3, seed=1),
        "bias": numbers(16, seed=2),
        "weight": numbers(256, 10, seed=3),
    }
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3, 8, 8])
    if constants_as_nodes:
        made = [
            helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(value))
            for name, value in constants.items()
        ]
        return onnx_model([*made, *nodes], {}, opset=opset, inputs=[images])
    return onnx_model(nodes, constants, opset=opset, inputs=[images])


def labelled(model: Path, count: int, path: Path, *, seed: int = 0, **arrays) -> Path:
    """Write samples with the labels that the model itself gives."""
    import onnxruntime

    x = numbers(count, 64, seed=seed)
    scores = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.savez(path, x=x, **{"labels": scores.argmax(-1), **arrays})
    return path


def written(model: onnx.ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    return saved(model, folder / name)
