from pathlib import Path

import numpy as np
import pytest

from cnai.compress.channels import quantize_channels
from cnai.compress.formats.graphdef import GraphDefFile, array_of
from cnai.compress.formats.tensorflow_messages import FLOAT, HALF, INT32
from cnai.core.errors import DataError
from graphs_for_tests import constant, node, numbers, perceptron, saved


def opened(graph, tmp_path: Path) -> GraphDefFile:
    return GraphDefFile(saved(graph, tmp_path / "m.pb"))


def weight_of(file: GraphDefFile, name: str = "weight"):
    return next(one for one in file.weights() if one.name == name)


def computed(graph, name: str) -> np.ndarray:
    """Return what a node of constants, casts, products and identities gives."""
    found = {one.name: one for one in graph.node}[name]
    kinds = {FLOAT: np.float32, HALF: np.float16, 6: np.int8}
    if found.op == "Const":
        tensor = found.attr["value"].tensor
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        return np.frombuffer(tensor.tensor_content, kinds[tensor.dtype]).reshape(shape)
    inputs = [computed(graph, one.split(":")[0]) for one in found.input]
    if found.op == "Cast":
        return inputs[0].astype(kinds[found.attr["DstT"].type])
    return inputs[0] * inputs[1] if found.op == "Mul" else inputs[0]


def test_the_matrix_of_a_product_has_its_channels_in_the_columns(tmp_path: Path):
    weight = weight_of(opened(perceptron(), tmp_path))
    assert (weight.use, weight.axes, weight.shape) == ("MatMul", (1,), (64, 32))


def test_a_transposed_matrix_has_them_in_the_rows(tmp_path: Path):
    graph = perceptron()
    graph.node[4].attr["transpose_b"].b = True
    assert weight_of(opened(graph, tmp_path)).axes == (0,)


@pytest.mark.parametrize(
    ("op", "shape", "axes"),
    [
        ("Conv2D", (3, 3, 4, 8), (3,)),
        ("DepthwiseConv2dNative", (3, 3, 4, 2), (2, 3)),
        ("BatchMatMulV2", (5, 6, 7), (0, 2)),
    ],
)
def test_channels_of_other_operations(tmp_path: Path, op, shape, axes):
    graph = perceptron(numbers(*shape))
    graph.node[4].op = op
    assert weight_of(opened(graph, tmp_path)).axes == axes


def test_a_table_has_a_channel_a_row(tmp_path: Path):
    graph = perceptron()
    graph.node[4].op = "GatherV2"
    graph.node[4].input[:] = ["read", "x"]
    assert weight_of(opened(graph, tmp_path)).axes == (0,)


def test_a_vector_that_is_added_has_no_use(tmp_path: Path):
    assert weight_of(opened(perceptron(), tmp_path), "bias").use == ""


def test_a_quantized_weight_is_computed_under_its_old_name(tmp_path: Path):
    file = opened(perceptron(), tmp_path)
    weight = weight_of(file)
    new = quantize_channels(file.read(weight), weight.axes)
    file.replace(weight, new)
    assert np.array_equal(computed(file.graph, "weight"), new.restored())
    assert np.array_equal(computed(file.graph, "read"), new.restored())


def test_a_float16_weight_is_computed_under_its_old_name(tmp_path: Path):
    file = opened(perceptron(), tmp_path)
    weight = weight_of(file)
    half = file.read(weight).astype(np.float16)
    file.replace(weight, half)
    assert np.array_equal(computed(file.graph, "weight"), half.astype(np.float32))


def test_every_node_stands_after_those_that_it_reads(tmp_path: Path):
    file = opened(perceptron(), tmp_path)
    weight = weight_of(file)
    file.replace(weight, quantize_channels(file.read(weight), weight.axes))
    seen: set[str] = set()
    for one in file.graph.node:
        assert set(one.input) <= seen
        seen.add(one.name)


def test_names_that_are_taken_are_not_used_again(tmp_path: Path):
    graph = perceptron()
    constant(graph, "weight/int8", numbers(2))
    file = opened(graph, tmp_path)
    weight = weight_of(file)
    file.replace(weight, quantize_channels(file.read(weight), weight.axes))
    names = [one.name for one in file.graph.node]
    assert len(names) == len(set(names))


def test_other_nodes_are_as_they_were(tmp_path: Path):
    graph = perceptron()
    file = opened(graph, tmp_path)
    weight = weight_of(file)
    file.replace(weight, quantize_channels(file.read(weight), weight.axes))
    after = {one.name: one for one in file.graph.node}
    for one in graph.node:
        if one.name != "weight":
            assert after[one.name] == one


def test_a_constant_in_a_function_is_quantized_too(tmp_path: Path):
    graph = perceptron()
    function = graph.library.function.add()
    function.signature.name = "f"
    inner = perceptron()
    function.node_def.extend(inner.node)
    for one in function.node_def:
        one.input[:] = [f"{name}:output:0" if name == "weight" else name for name in one.input]
    file = opened(graph, tmp_path)
    weight = weight_of(file, "f/:/weight")
    file.replace(weight, quantize_channels(file.read(weight), (1,)))
    nodes = {one.name: one for one in file.graph.library.function[0].node_def}
    assert nodes["read"].input[0] == "weight:z:0"
    assert list(nodes["weight"].input) == ["weight/cast:y:0", "weight/scale:output:0"]


def test_a_value_that_is_listed_once_fills_the_constant(tmp_path: Path):
    graph = perceptron()
    tensor = graph.node[1].attr["value"].tensor
    tensor.ClearField("tensor_content")
    tensor.float_val.append(0.5)
    assert (array_of(tensor, where="here") == 0.5).all()


def test_a_constant_of_one_number_is_small_already(tmp_path: Path):
    graph = perceptron()
    tensor = graph.node[1].attr["value"].tensor
    tensor.ClearField("tensor_content")
    tensor.float_val.append(0.5)
    tensor.tensor_shape.dim[0].size = 2**60
    assert [one.name for one in opened(graph, tmp_path).weights()] == ["bias"]


def test_a_constant_that_is_too_short_is_damaged(tmp_path: Path):
    graph = perceptron()
    graph.node[1].attr["value"].tensor.tensor_content = b"\0" * 40
    file = opened(graph, tmp_path)
    with pytest.raises(DataError, match="holds 10 numbers"):
        file.read(weight_of(file))


def test_control_inputs_stay_with_the_constant(tmp_path: Path):
    graph = perceptron()
    graph.node[1].input.append("^x")
    file = opened(graph, tmp_path)
    weight = weight_of(file)
    file.replace(weight, quantize_channels(file.read(weight), weight.axes))
    assert "^x" in {one.name: one for one in file.graph.node}["weight/int8"].input


def shaped(graph, op: str, numbers_of: tuple[int, ...]) -> None:
    """Let the product read the weight through a reshape or transpose."""
    constant(graph, "shape", np.array(numbers_of, np.int32), INT32)
    node(graph, "flat", op, "weight", "shape")
    graph.node[4].input[1] = "flat"
    graph.node[3].input[:] = ["x"]


@pytest.mark.parametrize(
    ("op", "numbers_of", "stored"),
    [
        ("Reshape", (64, -1), (64, 4, 8)),
        ("Transpose", (1, 0), (32, 64)),
        ("ExpandDims", (0,), (64, 32)),
    ],
)
def test_a_weight_is_quantized_in_the_shape_in_which_it_is_seen(
    tmp_path: Path, op, numbers_of, stored
):
    graph = perceptron(numbers(*stored))
    shaped(graph, op, numbers_of)
    file = opened(graph, tmp_path)
    weight = weight_of(file)
    values = file.read(weight)
    assert values.shape == weight.shape
    assert (weight.use, weight.axes) == (
        "MatMul",
        (*range(values.ndim - 2), values.ndim - 1),
    )
    new = quantize_channels(values, weight.axes)
    file.replace(weight, new)
    assert np.array_equal(computed(file.graph, "flat"), new.restored())
    assert "weight" not in {one.name for one in file.graph.node}


def test_a_weight_that_others_read_too_keeps_its_shape(tmp_path: Path):
    graph = perceptron(numbers(64, 4, 8))
    shaped(graph, "Reshape", (64, 32))
    node(graph, "other", "Shape", "weight")
    found = weight_of(opened(graph, tmp_path))
    assert (found.use, found.axes, found.shape) == ("MatMul", None, (64, 4, 8))


@pytest.mark.parametrize("numbers_of", [(64, 33), (-1, -1), (-2, 32), (0, -1)])
def test_a_shape_that_cannot_be_leaves_the_weight_alone(tmp_path: Path, numbers_of):
    graph = perceptron(numbers(64, 4, 8))
    shaped(graph, "Reshape", numbers_of)
    assert weight_of(opened(graph, tmp_path)).axes is None


def test_a_shape_that_is_computed_leaves_the_weight_alone(tmp_path: Path):
    graph = perceptron(numbers(64, 4, 8))
    shaped(graph, "Reshape", (64, 32))
    graph.node[-2].op = "Shape"
    assert weight_of(opened(graph, tmp_path)).axes is None


@pytest.mark.parametrize(
    ("equation", "axes"),
    [(b"ab,bcd->acd", (1, 2)), (b"ab,cbd->acd", (0, 2)), (b"ab,bcd->bcd", None)],
)
def test_channels_of_a_sum_of_products_follow_its_equation(tmp_path: Path, equation, axes):
    graph = perceptron(numbers(64, 4, 8))
    graph.node[4].op = "Einsum"
    graph.node[4].attr["equation"].s = equation
    assert weight_of(opened(graph, tmp_path)).axes == axes


def test_garbage_is_no_graph(tmp_path: Path):
    (tmp_path / "m.pb").write_bytes(b"\x0a\xff")
    with pytest.raises(DataError, match="no whole TensorFlow graph"):
        GraphDefFile(tmp_path / "m.pb")


def test_a_file_larger_than_a_message_can_be_is_refused(tmp_path: Path):
    with (tmp_path / "m.pb").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(DataError, match="larger than 2 GB"):
        GraphDefFile(tmp_path / "m.pb")
