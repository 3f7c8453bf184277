import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from cnai.compress.onnx_int8 import prepare
from cnai.compress.onnx_int8.prepare import opset_of
from cnai.core.errors import RunError
from graphs_for_tests import numbers, onnx_model, onnx_perceptron
from guard_case import convolution, written


def answers(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17])
def test_opsets_before_scales_a_channel_are_lifted_and_newer_ones_stay(tmp_path, opset):
    found = prepare(written(onnx_perceptron(opset), tmp_path))
    assert opset_of(found) == (17 if opset < 13 else opset)


@pytest.mark.parametrize("nodes", [False, True])
def test_a_prepared_model_answers_the_same(tmp_path, nodes):
    model = convolution(11, constants_as_nodes=nodes)
    x = numbers(2, 3, 8, 8)
    found = prepare(written(model, tmp_path))
    np.testing.assert_allclose(answers(found, x), answers(model, x), rtol=1e-4, atol=1e-4)


def test_weights_in_constant_nodes_become_initializers(tmp_path):
    found = prepare(written(convolution(constants_as_nodes=True), tmp_path))
    assert not [one for one in found.graph.node if one.op_type == "Constant"]
    assert {(16, 3, 3, 3), (256, 10)} <= {tuple(one.dims) for one in found.graph.initializer}


def test_every_node_has_a_name_of_its_own(tmp_path):
    model = onnx_perceptron()
    for node in model.graph.node:
        node.name = "same"
    names = [one.name for one in prepare(written(model, tmp_path)).graph.node]
    assert len(set(names)) == len(names)


def test_a_normalisation_is_fused_into_its_convolution(tmp_path):
    model = convolution()
    nodes = list(model.graph.node)
    nodes[0].output[0] = "raw"
    normal = helper.make_node("BatchNormalization", ["raw", "g", "b", "m", "v"], ["c"])
    del model.graph.node[:]
    model.graph.node.extend([nodes[0], normal, *nodes[1:]])
    for name, low in (("g", 1), ("b", 0), ("m", 0), ("v", 1)):
        values = np.abs(numbers(16, seed=ord(name))) + low
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    found = prepare(written(model, tmp_path))
    assert "BatchNormalization" not in {one.op_type for one in found.graph.node}


def test_models_of_16_bit_floats_are_refused_with_the_reason(tmp_path):
    half = numbers(64, 32).astype(np.float16)
    model = onnx_model(
        [
            helper.make_node("Cast", ["w"], ["f"], to=1),
            helper.make_node("MatMul", ["x", "f"], ["y"]),
        ],
        {"w": half},
    )
    with pytest.raises(RunError, match="16-bit floats"):
        prepare(written(model, tmp_path))


def test_what_the_metadata_says_is_kept(tmp_path):
    model = onnx_perceptron()
    model.metadata_props.add(key="character", value="ab")
    assert prepare(written(model, tmp_path)).metadata_props[0].value == "ab"
