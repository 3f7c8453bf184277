import numpy as np
import pytest

from cnai.compress.bootstrap import interval


def test_a_number_that_is_always_the_same_has_no_width():
    assert interval(5, lambda _drawn: 0.25) == (0.25, 0.25)


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide():
    values = np.random.default_rng(0).normal(size=400)
    low, high = interval(400, lambda drawn: float(values[drawn].mean()))
    assert low < values.mean() < high
    assert high - low == pytest.approx(4 * values.std() / 20, rel=0.1)


def test_draws_that_give_no_number_are_left_out():
    low, high = interval(3, lambda drawn: 1.0 if drawn[0] else float("nan"))
    assert (low, high) == (1.0, 1.0)


def test_without_any_number_there_is_no_interval():
    assert np.isnan(interval(3, lambda _drawn: float("inf"))).all()
