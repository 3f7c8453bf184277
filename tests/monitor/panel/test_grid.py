from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.vectors import Columns, LayersMeasured
from cnai.monitor.panel import grid
from cnai.monitor.panel.grid import LayerGrid, RankGrid
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
    assert one._table._count[0].size <= 1 << 21
    assert one.every == 4
    assert one.at(300)[-1][0] == 9_999


@given(st.lists(st.integers(1, 400), max_size=60))
def test_nothing_is_lost_or_counted_twice(steps):
    one = RankGrid()
    one._table._columns = 4
    one._table._count, one._table._sum = np.zeros((2, 2, 1, 4), dtype=np.float32)
    for number in steps:
        one.add(step(number))
    assert one._table._count[0].sum() == len(steps)


PARAMETERS = ("embedding.weight", "layers.0.a.weight", "layers.0.b.weight", "layers.1.a.weight")


def measured(number, gradient, update, weight, names=PARAMETERS):
    groups = tuple((group, names) for group in ("gradient", "update", "weight"))
    values = np.array([*gradient, *update, *weight], dtype=np.float32)
    columns = Columns(groups)
    return LayersMeasured(
        time_unix=1.0, attempt=0, step=number, columns=columns, values=values
    )  # fmt: skip


def test_the_parameters_of_a_layer_make_one_norm():
    one = LayerGrid()
    one.add(measured(1, (1, 3, 4, 2), (0.1, 0.3, 0.4, 0.2), (10, 6, 8, 20)))
    assert one.names == ["embedding", "layer 0", "layer 1"]
    assert one.norms(8) == [[1.0], [5.0], [2.0]]
    assert one.ratios(8) == [[0.01], [0.05], [0.01]]


def test_a_layer_that_was_not_measured_has_no_number():
    one = LayerGrid()
    nan = float("nan")
    one.add(measured(1, (1, 1, 1, 1), (nan,) * 4, (nan,) * 4))
    one.add(measured(2, (3, 1, 1, 1), (1, 1, 1, 1), (2, 2, 2, 0)))
    assert one.norms(8)[0] == [1.0, 3.0]
    assert [row[0] for row in one.ratios(8)] == [None, None, None]
    assert one.ratios(8)[2][1] is None  # of a weight that is zero


def test_other_layers_begin_a_new_table():
    one = LayerGrid()
    one.add(measured(1, (1, 1, 1, 1), (1,) * 4, (1,) * 4))
    one.add(measured(2, (2,), (1,), (1,), names=("head.weight",)))
    assert one.names == ["head"]
    assert one.norms(8) == [[None, 2.0]]


def test_two_hundred_layers_and_ten_thousand_steps_stay_bounded():
    one = LayerGrid()
    names = tuple(f"layers.{n}.w" for n in range(200))
    row = measured(1, np.ones(200), np.ones(200), np.ones(200), names)
    for number in range(1, 10_001, 7):
        one.add(replace(row, step=number))
    assert len(one.norms(240)[0]) <= 240
