import numpy as np
import onnxruntime
from onnx import helper

from cnai.compress.onnx_int8 import dynamic_nodes, prepare, write_dynamic
from graphs_for_tests import numbers, onnx_model, onnx_perceptron
from guard_case import convolution, written


def answers(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def close(one, two):
    return np.abs(one - two).max() < 0.05 * np.abs(one).max()


def test_a_product_computes_in_int8_with_nearly_the_same_answers(tmp_path):
    model, x = onnx_perceptron(), numbers(8, 64)
    ready = prepare(written(model, tmp_path))
    made = write_dynamic(ready, set(dynamic_nodes(ready)))
    assert "MatMulInteger" in {one.op_type for one in made.graph.node}
    assert close(answers(model, x), answers(made, x))


def test_a_transposed_weight_and_its_bias_are_kept(tmp_path):
    model = onnx_model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"w": numbers(32, 64), "b": 10 * numbers(32, seed=4)},
    )
    ready, x = prepare(written(model, tmp_path)), numbers(8, 64)
    assert close(answers(model, x), answers(write_dynamic(ready, set(dynamic_nodes(ready))), x))


def test_no_convolution_is_ever_dynamic(tmp_path):
    ready = prepare(written(convolution(), tmp_path))
    kinds = {one.name: one.op_type for one in ready.graph.node}
    assert [kinds[one] for one in dynamic_nodes(ready)] == ["MatMul"]


def test_an_input_that_two_products_read_is_rounded_once(tmp_path):
    model = onnx_model(
        [
            helper.make_node("MatMul", ["x", "v"], ["a"]),
            helper.make_node("MatMul", ["x", "w"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        {"v": numbers(64, 32, seed=1), "w": numbers(64, 32, seed=2)},
    )
    ready = prepare(written(model, tmp_path))
    made = write_dynamic(ready, set(dynamic_nodes(ready)))
    kinds = [one.op_type for one in made.graph.node]
    assert kinds.count("DynamicQuantizeLinear") == 1
    assert kinds.count("MatMulInteger") == 2
