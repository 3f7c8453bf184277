import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cnai.monitor.panel.thinning import thin

VALUES = arrays(np.float64, st.integers(1, 300), elements=st.floats(allow_nan=True))


def test_a_short_curve_is_left_alone():
    x = np.arange(10.0)
    assert thin(x, x, 10)[0] is x


def test_a_single_peak_is_kept():
    y = np.zeros(10_000)
    y[4321] = 7.0
    x, kept = thin(np.arange(10_000.0), y, 100)
    assert x[kept.argmax()] == 4321


def test_a_peak_beside_numbers_that_are_none_is_kept():
    y = np.full(1000, np.nan)
    y[500] = -1.0
    assert np.nanmin(thin(np.arange(1000.0), y, 20)[1]) == -1.0


@given(VALUES, st.integers(4, 60))
def test_points_are_few_in_order_and_of_the_curve(y, points):
    x = np.arange(float(len(y)))
    steps, kept = thin(x, y, points)
    assert len(steps) <= points
    assert (np.diff(steps) > 0).all()
    np.testing.assert_array_equal(kept, y[steps.astype(int)])


@given(VALUES, st.integers(4, 60))
def test_both_ends_and_both_extremes_stay(y, points):
    steps, kept = thin(np.arange(float(len(y))), y, points)
    assert (steps[0], steps[-1]) == (0, len(y) - 1)
    finite = y[np.isfinite(y)]
    if len(finite):
        of_kept = kept[np.isfinite(kept)]
        assert (of_kept.min(), of_kept.max()) == (finite.min(), finite.max())
