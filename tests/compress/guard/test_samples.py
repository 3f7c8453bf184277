import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cnai.compress.guard.samples import Sample, batched, drawn, split
from cnai.compress.runners import InputSpec

FREE = (InputSpec(name="x", shape=(None, None), dtype="float32"),)
FIXED = (InputSpec(name="x", shape=(1, None), dtype="float32"),)


def samples(*widths: int) -> list[Sample]:
    return [Sample(feeds={"x": np.full((1, one), n)}) for n, one in enumerate(widths)]


@given(st.integers(2, 600), st.integers(0, 9))
def test_no_sample_both_calibrates_and_judges_and_none_is_lost(count, seed):
    every = samples(*[1] * count)
    calibration, evaluation, apart = split(every, seed=seed)
    assert apart
    assert len({id(one) for one in (*calibration, *evaluation)}) == count
    assert 1 <= len(calibration) <= 128


def test_a_single_sample_serves_for_both():
    calibration, evaluation, apart = split(samples(1), seed=0)
    assert (len(calibration), len(evaluation), apart) == (1, 1, False)


def test_samples_are_drawn_in_their_order_and_the_same_each_time():
    every = samples(*[1] * 50)
    found = drawn(every, 10, seed=3)
    places = [every.index(one) for one in found]
    assert places == sorted(places)
    assert found == drawn(every, 10, seed=3)


@given(st.lists(st.integers(1, 3), max_size=20), st.integers(1, 5))
def test_batches_hold_all_samples_in_order_and_one_shape_each(widths, size):
    found = list(batched(samples(*widths), FREE, size))
    assert [value for feeds, _ in found for value in feeds["x"][:, 0]] == list(range(len(widths)))
    assert all(rows == len(feeds["x"]) <= size for feeds, rows in found)


def test_a_model_of_single_rows_gets_single_rows():
    assert [rows for _, rows in batched(samples(2, 2), FIXED, 8)] == [1, 1]
