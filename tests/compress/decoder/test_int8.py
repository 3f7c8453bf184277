import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cnai.compress.decoder.int8 import quantize_int8
from cnai.compress.decoder.quantizers import quantizer_for
from cnai.core.artifact import Precision
from cnai.core.errors import DataError, SpecError

matrices = arrays.arrays(
    "float32",
    st.tuples(st.integers(1, 5), st.integers(1, 9)),
    elements=st.floats(-(2**100), 2**100, width=32),
).map(torch.from_numpy)


@given(matrices)
@settings(deadline=None)
def test_no_weight_is_off_by_more_than_half_a_scale(weight):
    matrix = quantize_int8("w", weight)
    error = (matrix.values * matrix.scale - weight).abs()
    assert bool((error <= matrix.scale * 0.5001).all())


@given(matrices)
@settings(deadline=None)
def test_values_are_symmetric_and_scales_positive(weight):
    matrix = quantize_int8("w", weight)
    assert matrix.values.dtype == torch.int8
    assert matrix.values.min() >= -127
    assert matrix.scale.shape == (len(weight), 1)
    assert bool((matrix.scale > 0).all())


@given(matrices, st.integers(0, 4))
@settings(deadline=None)
def test_a_row_does_not_depend_on_the_others(weight, row):
    row %= len(weight)
    whole, alone = quantize_int8("w", weight), quantize_int8("w", weight[row : row + 1])
    assert torch.equal(whole.values[row], alone.values[0])
    assert torch.equal(whole.scale[row], alone.scale[0])


@given(matrices)
@settings(deadline=None)
def test_quantizing_again_changes_nothing(weight):
    once = quantize_int8("w", weight)
    twice = quantize_int8("w", once.values * once.scale)
    assert torch.equal(once.values, twice.values)


def test_a_row_of_zeros_stays_zero():
    matrix = quantize_int8("w", torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
    assert matrix.values.tolist() == [[0, 0], [64, -127]]
    assert matrix.scale.isfinite().all()


def test_a_row_too_small_for_a_scale_becomes_zero():
    matrix = quantize_int8("w", torch.tensor([[1e-44, -1e-44]]))
    assert matrix.values.tolist() == [[0, 0]]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_no_finite_number_is_refused_with_its_tensor(broken):
    weight = torch.ones(2, 3)
    weight[1, 2] = broken
    with pytest.raises(DataError, match=r"1 of 6 weights of `layers\.0\.x`"):
        quantize_int8("layers.0.x", weight)


def test_int8_has_a_quantizer():
    assert quantizer_for(Precision.INT8) is quantize_int8


def test_a_precision_without_a_quantizer_says_which_have_one():
    with pytest.raises(SpecError, match="bf16") as caught:
        quantizer_for(Precision.BF16)
    assert "int8" in caught.value.hint
