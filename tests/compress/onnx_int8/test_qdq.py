import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from cnai.compress.onnx_int8 import (
    calibrate,
    calibrated_tensors,
    prepare,
    static_nodes,
    write_static,
)
from cnai.compress.onnx_int8.qdq import _signed, _unsigned
from cnai.compress.onnx_int8.selection import between
from graphs_for_tests import numbers, onnx_model
from guard_case import classifier, convolution, written


def quantized(model: onnx.ModelProto, tmp_path, x: np.ndarray, *, everything: bool = False):
    """Return the float answers, the INT8 answers and the INT8 model."""
    ready = prepare(written(model, tmp_path))
    ranges = calibrate(ready, calibrated_tensors(ready), [{"x": x}])
    nodes = {*static_nodes(ready), *([one.name for one in between(ready)] if everything else [])}
    made = write_static(ready, ranges, nodes)
    before, after = (
        onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0]
        for one in (model, made)
    )
    return before, after, made


def cosine(one, two):
    return float((one * two).sum() / np.sqrt((one * one).sum() * (two * two).sum()))


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("opset", [11, 17])
def test_convolutions_compute_in_int8_with_nearly_the_same_answers(tmp_path, opset, everything):
    x = numbers(8, 3, 8, 8)
    before, after, _ = quantized(convolution(opset), tmp_path, x, everything=everything)
    assert cosine(before, after) > 0.999
    assert (before != after).any()


def test_products_with_bias_compute_in_int8(tmp_path):
    before, after, made = quantized(classifier(), tmp_path, numbers(32, 64))
    assert (before.argmax(-1) == after.argmax(-1)).mean() > 0.9
    stored = {one.data_type for one in made.graph.initializer if len(one.dims) > 1}
    assert stored == {onnx.TensorProto.INT8}


def test_biases_are_32_bit_numbers_a_channel(tmp_path):
    _, _, made = quantized(convolution(), tmp_path, numbers(4, 3, 8, 8))
    kinds = [one.data_type for one in made.graph.initializer if list(one.dims) == [16]]
    assert onnx.TensorProto.INT32 in kinds


def test_a_bias_of_rank_two_is_flattened(tmp_path):
    model = onnx_model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        {"w": numbers(64, 32), "b": numbers(1, 32)},
    )
    before, after, _ = quantized(model, tmp_path, numbers(16, 64))
    assert cosine(before, after) > 0.999


def test_a_weight_that_two_operations_share_serves_both(tmp_path):
    model = onnx_model(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w"], ["y"]),
        ],
        {"w": numbers(64, 64) / 8},
    )
    before, after, _ = quantized(model, tmp_path, numbers(16, 64))
    assert cosine(before, after) > 0.999


def test_a_result_that_is_given_out_keeps_its_name(tmp_path):
    model = convolution()
    del model.graph.node[1:]
    model.graph.output[0].name = "c"
    del model.graph.initializer[2]
    before, after, made = quantized(model, tmp_path, numbers(4, 3, 8, 8))
    assert made.graph.output[0].name == "c"
    assert cosine(before, after) > 0.999


def test_a_node_without_a_range_stays_as_it_was(tmp_path):
    ready = prepare(written(convolution(), tmp_path))
    ranges = calibrate(ready, ["x"], [{"x": numbers(2, 3, 8, 8)}])
    ranges.ends.clear()
    made = write_static(ready, ranges, set(static_nodes(ready)))
    assert [one.op_type for one in made.graph.node] == [one.op_type for one in ready.graph.node]


def test_a_dead_channel_does_no_harm(tmp_path):
    model = convolution()
    kernel = numbers(16, 3, 3, 3, seed=1)
    kernel[5] = 0
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(kernel, "kernel"))
    _, after, _ = quantized(model, tmp_path, numbers(4, 3, 8, 8))
    assert np.isfinite(after).all()


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_zero_is_exact_and_both_ends_are_held(one, two):
    low, high = min(one, two, 0.0), max(one, two, 0.0)
    scale, zero = _unsigned(low, high)
    assert 0 <= zero <= 255
    assert (0 - zero) * scale <= low + scale
    assert (255 - zero) * scale >= high - scale


@given(st.floats(-1e8, 1e8), st.floats(1e-6, 1e3))
def test_a_huge_bias_still_fits_into_32_bits(bias, entry):
    weight = np.full((1, 4), 1e-4, np.float32)
    _, scale = _signed(weight, 0, np.array([bias], np.float32), entry)
    assert abs(bias / (float(scale[0]) * entry)) < 2**31 - 1
