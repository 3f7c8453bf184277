import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cnai.compress.channels import quantize_channels
from cnai.compress.folder.dtypes import as_bfloat16, widened
from cnai.compress.folder.rounding import quantized_rows, restored_rows
from cnai.compress.folder.treatment import Form, Treatment, group_for
from folders_for_tests import drawn

rows = arrays.arrays(
    "float32",
    st.tuples(st.integers(1, 4), st.sampled_from([32, 64])),
    elements=st.floats(-(2**60), 2**60, width=32),
)
FORMS = [Treatment(form=Form.W8A16), Treatment(form=Form.FP8), Treatment(form=Form.W4A16, group=32)]


@given(rows)
@settings(deadline=None)
def test_int8_is_that_of_every_other_format(exact):
    new = quantized_rows(exact, Treatment(form=Form.W8A16), short_scales=False)
    other = quantize_channels(exact, (0,))
    np.testing.assert_array_equal(new.values, other.values)
    np.testing.assert_array_equal(new.scale, other.scale)


@given(rows, st.sampled_from(FORMS), st.booleans())
@settings(deadline=None)
def test_a_row_does_not_depend_on_the_others(exact, treatment, short):
    whole = quantized_rows(exact, treatment, short_scales=short)
    alone = quantized_rows(exact[:1], treatment, short_scales=short)
    np.testing.assert_array_equal(whole.values[:1], alone.values)
    np.testing.assert_array_equal(whole.scale[:1], alone.scale)


@given(rows, st.sampled_from(FORMS), st.booleans())
@settings(deadline=None)
def test_what_is_restored_is_finite_and_near(exact, treatment, short):
    new = quantized_rows(exact, treatment, short_scales=short)
    restored = restored_rows(new, treatment.form)
    assert np.isfinite(restored).all()
    width = {Form.W8A16: 1.01 / 127, Form.FP8: 1.01 / 16, Form.W4A16: 0.3}[treatment.form]
    largest = np.abs(exact).max(axis=1, keepdims=True)
    assert (np.abs(restored - exact) <= width * largest + 1e-37).all()


@pytest.mark.parametrize("treatment", FORMS, ids=lambda one: one.form)
def test_scales_of_a_bfloat16_model_are_bfloat16_numbers(treatment):
    new = quantized_rows(drawn((6, 64)), treatment, short_scales=True)
    np.testing.assert_array_equal(new.scale, as_bfloat16(new.scale))


def test_short_scales_cost_next_to_nothing_because_values_are_rounded_to_them():
    exact = drawn((64, 256))
    errors = [
        np.linalg.norm(restored_rows(quantized_rows(exact, FORMS[0], short_scales=short), "w8a16")
                       - exact)
        for short in (False, True)
    ]  # fmt: skip
    assert errors[1] < 1.05 * errors[0]


@pytest.mark.parametrize("treatment", FORMS, ids=lambda one: one.form)
def test_zeros_stay_zeros(treatment):
    new = quantized_rows(np.zeros((2, 32), np.float32), treatment, short_scales=True)
    assert (restored_rows(new, treatment.form) == 0).all()
    assert (new.scale > 0).all()


def test_four_bits_with_groups_err_less_than_with_whole_rows():
    exact = drawn((32, 128))
    exact[:, ::64] *= 8
    whole, grouped = (
        restored_rows(
            quantized_rows(exact, Treatment(form=Form.W4A16, group=group), short_scales=False),
            Form.W4A16,
        )
        for group in (128, 32)
    )
    assert np.linalg.norm(grouped - exact) < 0.8 * np.linalg.norm(whole - exact)


@pytest.mark.parametrize(("columns", "group"), [(576, 64), (128, 64), (96, 32), (48, None)])
def test_the_group_divides_the_inputs(columns, group):
    assert group_for(columns) == group


@given(arrays.arrays("float32", 20, elements=st.floats(width=32, allow_nan=False)))
def test_bfloat16_is_widened_bit_for_bit(values):
    import ml_dtypes

    short = values.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(widened(short), short.astype(np.float32))
