import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.monitor.panel import grid
from cnai.monitor.panel.grid import RankGrid
from monitor_case import step


@pytest.fixture
def small(monkeypatch):
    """Make grids of eight stretches."""
    monkeypatch.setattr(grid, "_MOST_COLUMNS", 8)
    monkeypatch.setattr(grid, "_FEWEST_COLUMNS", 2)
    return RankGrid()


def test_each_rank_has_its_own_row(small):
    small.add(step(1, rank=0, data_wait_seconds=0.1))
    small.add(step(1, rank=2, data_wait_seconds=0.3))
    assert small.waits(10) == [[0.1], [None], [0.3]]


def test_a_long_run_is_put_together_in_pairs(small):
    for number in range(1, 17):
        small.add(step(number, data_wait_seconds=float(number)))
    assert small.every == 2
    assert small.waits(8)[0] == [1.5, 3.5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5]


def test_a_screen_gets_no_more_columns_than_it_asks_for(small):
    for number in range(1, 9):
        small.add(step(number, data_wait_seconds=float(number)))
    assert small.waits(2) == [[2.5, 6.5]]
    assert small.stretch_steps(2) == 4


def test_steps_that_are_repeated_are_forgotten_first(small):
    for number in (1, 2, 3):
        small.add(step(number, data_wait_seconds=1.0))
    small.forget_after(2)
    small.add(step(3, attempt=1, data_wait_seconds=5.0))
    assert small.waits(8) == [[1.0, 1.0, 5.0]]


def test_a_step_of_the_past_can_be_asked_for(small):
    small.add(step(1, rank=1, step_seconds=0.5, data_wait_seconds=0.25))
    small.add(step(2, rank=1, step_seconds=0.75, data_wait_seconds=0.25))
    assert small.at(1) == [(1, 0.5, 0.25)]
    assert small.at(3) == []
    assert small.at(0) == []


def test_ten_thousand_ranks_stay_in_bounded_memory():
    one = RankGrid()
    for number in range(1, 300):
        one.add(step(number))
    one.add(step(300, rank=9_999))
    assert one._count.size <= 1 << 21
    assert one.every == 4
    assert one.at(300)[-1][0] == 9_999


@given(st.lists(st.integers(1, 400), max_size=60))
def test_nothing_is_lost_or_counted_twice(steps):
    one = RankGrid()
    one._columns = 4
    one._count, one._seconds, one._wait = np.zeros((3, 1, 4), dtype=np.float32)
    for number in steps:
        one.add(step(number))
    assert one._count.sum() == len(steps)
