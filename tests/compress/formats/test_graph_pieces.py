from pathlib import Path

import numpy as np
import pytest

from cnai.compress.channels import quantize_channels
from cnai.compress.formats import graph_pieces
from cnai.compress.formats.graphdef import GraphDefFile
from cnai.compress.formats.tensorflow_messages import FLOAT, HALF, INT8, INT32
from graphs_for_tests import constant, node, numbers, perceptron, saved

KINDS = {FLOAT: np.float32, HALF: np.float16, INT8: np.int8, INT32: np.int32}
X = numbers(5, 64, seed=3)


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(graph_pieces, "LARGEST_FOLDED", 2048)


def value(graph, name: str, x: np.ndarray) -> np.ndarray:
    """Compute a node with numpy."""
    nodes = {one.name: one for one in graph.node}
    found = nodes[name]
    if found.op == "Placeholder":
        return x
    if found.op == "Const":
        tensor = found.attr["value"].tensor
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        return np.frombuffer(tensor.tensor_content, KINDS[tensor.dtype]).reshape(shape)
    inputs = [value(graph, one, x) for one in found.input if not one.startswith("^")]
    match found.op:
        case "Cast":
            return inputs[0].astype(KINDS[found.attr["DstT"].type])
        case "Mul":
            return inputs[0] * inputs[1]
        case "MatMul":
            second = inputs[1].T if found.attr["transpose_b"].b else inputs[1]
            return inputs[0] @ second
        case "ConcatV2":
            return np.concatenate(inputs[:-1], int(inputs[-1]))
        case "GatherV2":
            return inputs[0][inputs[1].astype(int)]
        case "BiasAdd":
            return inputs[0] + inputs[1]
    return inputs[0]


def replaced(graph, tmp_path: Path, axes: tuple[int, ...] = (1,), *, half: bool = False):
    file = GraphDefFile(saved(graph, tmp_path / "m.pb"))
    weight = next(one for one in file.weights() if one.name == "weight")
    values = file.read(weight)
    new = values.astype(np.float16) if half else quantize_channels(values, axes)
    file.replace(weight, new)
    return file.graph, new if half else new.restored()


def ops(graph) -> list[str]:
    return [one.op for one in graph.node]


@pytest.mark.parametrize("half", [False, True])
def test_a_large_product_becomes_several_with_the_same_result(tmp_path: Path, half):
    graph, weight = replaced(perceptron(), tmp_path, half=half)
    bias = value(graph, "bias", X)
    assert np.allclose(value(graph, "y", X), X @ weight.astype(np.float32) + bias, atol=1e-4)
    assert ops(graph).count("MatMul") == 4
    stored = [
        len(one.attr["value"].tensor.tensor_content) for one in graph.node if one.op == "Const"
    ]
    assert max(stored) * (2 if half else 4) <= 2048


def test_a_transposed_product_is_split_over_its_rows(tmp_path: Path):
    source = perceptron(numbers(32, 64))
    source.node[4].attr["transpose_b"].b = True
    source.node[2].CopyFrom(perceptron().node[2])
    graph, weight = replaced(source, tmp_path, axes=(0,))
    assert np.allclose(value(graph, "product", X), X @ weight.T, atol=1e-4)
    assert ops(graph).count("MatMul") == 4


def test_two_products_of_one_weight_share_its_pieces(tmp_path: Path):
    source = perceptron()
    node(source, "again", "MatMul", "x", "read", transpose_a=False, transpose_b=False)
    graph, weight = replaced(source, tmp_path)
    assert np.allclose(value(graph, "again", X), X @ weight, atol=1e-4)
    assert ops(graph).count("Cast") == 4
    assert ops(graph).count("MatMul") == 8


@pytest.mark.parametrize("half", [False, True])
def test_rows_of_a_large_table_are_looked_up_before_they_become_floats(tmp_path: Path, half):
    source = perceptron()
    constant(source, "axis", np.array(0, np.int32), INT32)
    source.node[4].op = "GatherV2"
    source.node[4].input[:] = ["read", "x", "axis"]
    source.node.sort(key=lambda one: one.name != "axis")
    graph, table = replaced(source, tmp_path, axes=(0,), half=half)
    rows = np.array([[3, 0], [7, 3]])
    assert np.allclose(value(graph, "product", rows), table[rows], atol=1e-4)
    casts = [one for one in graph.node if one.op == "Cast"]
    assert [one.name.startswith("product") for one in casts] == [True]


def test_a_table_with_another_axis_is_not_looked_up_so(tmp_path: Path):
    source = perceptron()
    constant(source, "axis", np.array(1, np.int32), INT32)
    source.node[4].op = "GatherV2"
    source.node[4].input[:] = ["read", "x", "axis"]
    graph, _ = replaced(source, tmp_path, axes=(0,))
    assert {one.name: one.op for one in graph.node}["weight"] == "Mul"


def test_a_weight_that_somebody_else_reads_stays_whole(tmp_path: Path):
    source = perceptron()
    node(source, "other", "Neg", "read")
    graph, weight = replaced(source, tmp_path)
    assert np.array_equal(value(graph, "read", X), weight)


def test_a_node_that_others_wait_for_does_nothing_but_stays(tmp_path: Path):
    source = perceptron()
    source.node.add(name="last", op="NoOp", input=["^read"])
    graph, _ = replaced(source, tmp_path)
    found = {one.name: one for one in graph.node}
    assert (found["read"].op, list(found["read"].input)) == ("NoOp", [])


def test_nodes_stay_in_the_order_of_their_flow(tmp_path: Path):
    graph, _ = replaced(perceptron(), tmp_path)
    seen: set[str] = set()
    for one in graph.node:
        assert set(one.input) <= seen
        seen.add(one.name)


def test_no_node_gets_an_attribute_that_it_did_not_have(tmp_path: Path):
    graph, _ = replaced(perceptron(), tmp_path)
    product = next(one for one in graph.node if one.op == "MatMul")
    assert set(product.attr) == {"T", "transpose_a", "transpose_b"}
