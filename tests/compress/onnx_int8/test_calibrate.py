import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.compress.onnx_int8 import calibrate
from cnai.compress.onnx_int8.calibrate import _Histogram
from graphs_for_tests import numbers, onnx_perceptron


def batches(*seeds: int):
    return [{"x": numbers(5, 64, seed=one)} for one in seeds]


def test_ranges_are_those_of_all_batches():
    some = batches(1, 2, 3)
    found = calibrate(onnx_perceptron(), ["x"], some)
    every = np.concatenate([one["x"] for one in some])
    assert found.ends["x"] == pytest.approx((every.min(), every.max()))
    assert found.samples == 3


def test_tensors_between_operations_are_seen():
    assert set(calibrate(onnx_perceptron(), ["h", "y"], batches(1)).ends) == {"h", "y"}


def test_a_tensor_that_holds_no_number_has_no_range():
    broken = batches(1, 2)
    broken[1]["x"][0, 0] = np.inf
    assert calibrate(onnx_perceptron(), ["x"], broken).ends == {}


def test_narrowed_ranges_leave_an_outlier_out():
    some = batches(1, 2)
    some[0]["x"][0, 0] = 1000
    wide = calibrate(onnx_perceptron(), ["x"], some)
    assert wide.ends["x"][1] == 1000
    assert wide.narrowed(0.99).ends["x"][1] < 10


@given(st.lists(st.integers(0, 50), min_size=4, max_size=64), st.floats(0.5, 1))
def test_a_narrowed_range_lies_within_the_whole_one(counts, share):
    found = _Histogram(low=-2.0, high=3.0, counts=np.array(counts)).between(share)
    assert -2.0 <= found[0] <= found[1] <= 3.0
