import numpy as np
import pytest

from cnai.compress.agreement import agreement_of


def compared(before, after):
    return agreement_of([np.array(before)], [np.array(after)], inputs="data", runtime="r")


def test_equal_outputs_agree_wholly():
    found = compared([[0.2, 0.8]], [[0.2, 0.8]])
    assert (found.cosine, found.relative_error, found.top1, found.kl) == (pytest.approx(1), 0, 1, 0)


def test_first_choices_are_counted_by_row():
    found = compared([[0.2, 0.8], [0.9, 0.1]], [[0.2, 0.8], [0.4, 0.6]])
    assert found.top1 == 0.5


def test_divergence_is_that_of_kullback_and_leibler():
    found = compared([[0.5, 0.5]], [[0.25, 0.75]])
    assert found.kl == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))


def test_what_is_no_probability_has_no_divergence():
    assert compared([[2.0, 3.0]], [[2.0, 3.0]]).kl is None


def test_a_single_number_a_row_has_no_first_choice():
    assert compared([[2.0], [3.0]], [[2.0], [3.0]]).top1 is None


def test_other_shapes_are_no_comparison():
    with pytest.raises(ValueError, match="other shapes"):
        compared([1.0], [1.0, 2.0])
