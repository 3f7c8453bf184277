"""The work of rows whose documents do not see each other, and dealing it out evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.data.work import evened, work_of

SEPARATOR = 0


def test_the_work_of_a_row_is_its_pairs_within_documents() -> None:
    rows = np.array([[1, 2, 0, 3], [1, 2, 3, 4], [0, 0, 0, 0]])
    assert work_of(rows, SEPARATOR).tolist() == [3 + 3, 10, 4]


@given(st.lists(st.lists(st.integers(0, 2), min_size=9, max_size=9), min_size=1, max_size=9))
def test_work_counts_the_pairs_of_a_mask(rows: list[list[int]]) -> None:
    tokens = np.array(rows)
    numbers = (tokens == SEPARATOR).cumsum(axis=1)
    mask = (numbers[:, :, None] == numbers[:, None, :]) & np.tri(9, dtype=bool)
    assert work_of(tokens, SEPARATOR).tolist() == mask.sum(axis=(1, 2)).tolist()


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_every_row_is_dealt_out_once(ranks: int, pieces: int, rows: int, seed: int) -> None:
    work = np.random.default_rng(seed).pareto(1.0, ranks * pieces * rows)
    order = evened(work, (pieces * rows, rows))
    assert sorted(order.tolist()) == list(range(len(work)))


def test_equal_rows_keep_whole_groups() -> None:
    assert sorted(evened(np.ones(8), (4, 2)).tolist()) == list(range(8))


def test_one_long_row_is_met_with_short_ones() -> None:
    work = np.array([6.0, 5.0, 4.0, 1.0, 2.0, 3.0])
    groups = work[evened(work, (2,))].reshape(3, 2).sum(axis=1)
    assert groups.tolist() == [7, 7, 7]


@given(st.integers(0, 2**32 - 1))
def test_the_heaviest_rank_never_gets_more_than_in_the_order_of_the_epoch_by_much(
    seed: int,
) -> None:
    work = np.random.default_rng(seed).lognormal(0, 1, 64)
    heaviest = work[evened(work, (8,))].reshape(8, 8).sum(axis=1).max()
    assert heaviest <= work.sum() / 8 + work.max()


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="do not make groups of 3"):
        evened(np.ones(8), (3,))
