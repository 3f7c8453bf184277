import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cnai.compress.channels import quantize_channels, rounding_error, typical_error

weights = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=1, max_dims=4, max_side=6),
    elements=st.floats(-(2.0**99), 2.0**99, width=32),
)


@settings(max_examples=60, deadline=None)
@given(weights, st.data())
def test_a_weight_changes_by_at_most_half_a_scale(weight, data):
    axes = data.draw(st.sets(st.integers(0, weight.ndim - 1)))
    new = quantize_channels(weight, tuple(axes))
    allowed = new.scale * np.float32(0.5001) + np.abs(weight) * np.float32(1e-6)
    assert (np.abs(new.restored() - weight) <= allowed).all()


def test_a_dead_channel_stays_zero():
    weight = np.array([[0.0, 0.0], [1.0, -2.0]], np.float32)
    new = quantize_channels(weight, (0,))
    assert (new.restored()[0] == 0).all()
    assert new.scale[0, 0] == 1


def test_scales_stand_along_the_channels_alone():
    new = quantize_channels(np.ones((3, 3, 4, 8), np.float32), (3,))
    assert new.scale.shape == (1, 1, 1, 8)


def test_no_channels_mean_one_scale():
    assert quantize_channels(np.ones((2, 3), np.float32), ()).scale.shape == (1, 1)


def test_an_empty_weight_stays_empty():
    assert quantize_channels(np.zeros((0, 4), np.float32), (1,)).values.shape == (0, 4)


def test_numbers_too_small_for_a_scale_become_zero():
    tiny = np.full((1, 4), 1e-40, np.float32)
    assert (quantize_channels(tiny, (0,)).restored() == 0).all()


def test_equal_weights_have_no_error():
    found = rounding_error(np.ones(5), np.ones(5))
    assert (found.relative, found.cosine) == (0, pytest.approx(1))


def test_the_error_is_the_norm_of_the_change():
    found = rounding_error(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert found.relative == pytest.approx(0.1)


def test_weights_of_zeros_agree():
    found = rounding_error(np.zeros(3), np.zeros(3))
    assert (found.relative, found.cosine) == (0, 1)


def test_the_typical_error_sees_what_one_huge_input_hides():
    weight = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    weight[0] *= 1000
    restored = quantize_channels(weight, (1,)).restored()
    assert rounding_error(weight, restored).relative < 0.02
    assert typical_error(weight, restored, (1,)) > 0.5


def test_the_typical_error_of_even_weights_is_that_of_the_whole():
    weight = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    restored = quantize_channels(weight, (1,)).restored()
    whole = rounding_error(weight, restored).relative
    assert typical_error(weight, restored, (1,)) == pytest.approx(whole, rel=0.1)
