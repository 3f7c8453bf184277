import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.serving import Histogram

BOUNDS = (0.1, 1.0, 10.0)


def filled(values):
    times = Histogram.empty(BOUNDS)
    for value in values:
        times = times.with_value(value)
    return times


@given(st.lists(st.floats(0, 100)))
def test_every_duration_is_counted_once(values):
    times = filled(values)
    assert times.count == len(values)
    assert times.sum == pytest.approx(sum(values))
    assert times.cumulative[-1] == len(values)


def test_a_bound_belongs_to_its_interval():
    assert filled([0.1, 0.11, 10.0, 11.0]).counts == (1, 1, 1, 1)


def test_nothing_has_no_mean():
    assert Histogram.empty(BOUNDS).mean is None
    assert filled([1.0, 3.0]).mean == 2.0
