import numpy as np
import pytest

from cnai.compress.guard.outputs import Kind, compare, kind_of, offset_of


def kinds(*arrays):
    return kind_of([{"y": np.array(one, np.float32)} for one in arrays])


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        ([[0.2, 0.8]], Kind.PROBABILITIES),
        ([[[0.2, 0.8], [1, 0]]], Kind.PROBABILITIES),
        ([[2.0, 3.0]], Kind.NUMBERS),
        ([[0.7]], Kind.DECISIONS),
        ([[1.7]], Kind.NUMBERS),
        (3.0, Kind.NUMBERS),
    ],
)
def test_what_an_output_means_is_told_by_its_numbers(array, kind):
    assert kinds(array) is kind


def test_one_sample_that_is_no_probability_makes_all_numbers():
    assert kinds([[0.2, 0.8]], [[0.2, 0.9]]) is Kind.NUMBERS


def test_divergence_is_that_of_kullback_and_leibler():
    one, two = {"y": np.array([[0.5, 0.5]])}, {"y": np.array([[0.25, 0.75]])}
    found = compare(one, two, Kind.PROBABILITIES)
    assert found.kl == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))


def test_the_source_says_what_it_thinks_of_the_new_choice():
    one, two = {"y": np.array([[0.6, 0.4]])}, {"y": np.array([[0.3, 0.7]])}
    found = compare(one, two, Kind.PROBABILITIES)
    assert (found.own, found.kept, found.same) == (0.6, 0.4, 0)


def test_only_classes_that_come_out_are_compared_by_equality():
    one, two = {"y": np.array([1, 2])}, {"y": np.array([1, 3])}
    assert compare(one, two, Kind.NUMBERS).same == 0.5


def test_infinite_numbers_of_the_source_may_stay_so():
    one = {"y": np.array([[1.0, -np.inf]])}
    assert compare(one, {"y": np.array([[1.0, -np.inf]])}, Kind.NUMBERS).finite


def test_an_offset_is_found_only_where_it_is_most_of_the_outputs():
    rows = np.random.default_rng(0).normal(size=(10, 1, 4))
    assert offset_of([{"y": one} for one in rows]) is None
    found = offset_of([{"y": one + 100} for one in rows])
    assert found == pytest.approx(rows.mean(axis=0)[0] + 100)
