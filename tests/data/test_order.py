import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.data.order import permutation, row_at, rows_at

ROWS = st.integers(1, 200)
SEEDS = st.integers(0, 2**31 - 1)


@given(rows=ROWS, seed=SEEDS, epoch=st.integers(0, 1000))
def test_every_row_comes_exactly_once_in_an_epoch(rows, seed, epoch):
    positions = np.arange(epoch * rows, (epoch + 1) * rows)
    assert sorted(rows_at(positions, rows, seed)) == list(range(rows))


@given(rows=ROWS, seed=SEEDS, start=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 50)))
def test_the_order_does_not_depend_on_how_it_is_cut(rows, seed, start, cuts):
    whole = rows_at(np.arange(start, start + sum(cuts)), rows, seed).tolist()
    pieces = []
    for cut in cuts:
        pieces += rows_at(np.arange(start, start + cut), rows, seed).tolist()
        start += cut
    assert pieces == whole


@given(rows=ROWS, seed=SEEDS, position=st.integers(0, 10**9))
def test_one_position_gives_the_same_row_as_many(rows, seed, position):
    assert row_at(position, rows, seed) == rows_at(np.array([position]), rows, seed)[0]


def test_the_shape_of_the_positions_is_kept():
    assert rows_at(np.arange(6).reshape(2, 3), 4, 0).shape == (2, 3)


def test_epochs_have_orders_of_their_own():
    assert permutation(100, 0, 0).tolist() != permutation(100, 0, 1).tolist()


def test_seeds_have_orders_of_their_own():
    assert permutation(100, 0, 0).tolist() != permutation(100, 1, 0).tolist()


def test_the_order_is_the_same_in_every_version():
    assert permutation(8, 7, 3).tolist() == [2, 4, 7, 3, 5, 1, 0, 6]


def test_a_row_lands_on_every_place_about_equally_often():
    places = np.array([np.flatnonzero(permutation(10, 0, epoch) == 3)[0] for epoch in range(2000)])
    counts = np.bincount(places, minlength=10)
    assert np.square(counts - 200).sum() / 200 < 27.9  # chi-square, 9 degrees, 0.1 %


def test_nobody_can_spoil_the_remembered_order():
    with pytest.raises(ValueError, match="read-only"):
        permutation(5, 0, 0)[0] = 3
