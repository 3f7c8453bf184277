from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.plan.balance import balance

COSTS = st.lists(st.floats(0, 100), min_size=1, max_size=10)


def peak(costs, cuts):
    return max(sum(costs[first:end]) for first, end in cuts)


def all_cuts(layers, stages):
    for inner in combinations(range(1, layers), stages - 1):
        ends = [0, *inner, layers]
        yield tuple(pairwise(ends))


@given(COSTS, st.data())
def test_every_layer_is_in_exactly_one_stage_and_no_stage_is_empty(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    cuts = balance(costs, stages)
    assert len(cuts) == stages
    assert [i for first, end in cuts for i in range(first, end)] == list(range(len(costs)))
    assert all(first < end for first, end in cuts)


@given(COSTS, st.data())
def test_the_slowest_stage_is_as_fast_as_any_cut_makes_it(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    best = min(peak(costs, cuts) for cuts in all_cuts(len(costs), stages))
    assert peak(costs, balance(costs, stages)) <= best * (1 + 1e-6)


def test_equal_layers_are_cut_evenly():
    assert balance([1.0] * 8, 4) == ((0, 2), (2, 4), (4, 6), (6, 8))


def test_30_layers_over_4_stages_drop_none():
    assert [end - first for first, end in balance([1.0] * 30, 4)] in ([8, 8, 7, 7], [7, 7, 8, 8])


def test_a_heavy_head_gets_fewer_layers():
    cuts = balance([1.0] * 7 + [4.0], 3)
    assert cuts[-1] == (7, 8)


def test_what_a_heavy_layer_leaves_is_spread_evenly():
    sizes = [end - first for first, end in balance([1.0] * 8 + [10.0], 3)]
    assert sizes == [4, 4, 1]


def test_free_layers_still_fill_every_stage():
    assert balance([0.0, 0.0, 0.0], 3) == ((0, 1), (1, 2), (2, 3))


@pytest.mark.parametrize("stages", [0, 4])
def test_more_stages_than_layers_are_refused(stages):
    with pytest.raises(ValueError, match="3 layers cannot be cut"):
        balance([1.0, 1.0, 1.0], stages)


def test_very_many_layers_are_cut_within_the_same_bound_and_in_no_time():
    costs = [1.0 + (layer % 7) for layer in range(3000)]
    cuts = balance(costs, 8)
    assert [end for _, end in cuts[:-1]] == [first for first, _ in cuts[1:]]
    assert (cuts[0][0], cuts[-1][1]) == (0, 3000)
    assert max(sum(costs[first:end]) for first, end in cuts) <= sum(costs) / 8 + 7


SLOWNESS = st.lists(st.floats(0.1, 10), min_size=1, max_size=6)


def slow_peak(costs, cuts, slowness):
    return max(
        slow * sum(costs[first:end]) for slow, (first, end) in zip(slowness, cuts, strict=True)
    )


@given(COSTS, SLOWNESS)
def test_stages_of_different_speed_are_cut_as_well_as_any_cut_does(costs, slowness):
    slowness = slowness[: len(costs)]
    cuts = balance(costs, len(slowness), slowness)
    assert [i for first, end in cuts for i in range(first, end)] == list(range(len(costs)))
    assert all(first < end for first, end in cuts)
    best = min(slow_peak(costs, one, slowness) for one in all_cuts(len(costs), len(slowness)))
    assert slow_peak(costs, cuts, slowness) <= best * (1 + 1e-6) + 1e-12


@given(COSTS, st.data())
def test_equal_slowness_is_no_slowness(costs, data):
    stages = data.draw(st.integers(1, len(costs)))
    plain = peak(costs, balance(costs, stages))
    assert peak(costs, balance(costs, stages, [2.0] * stages)) == pytest.approx(plain, abs=1e-9)


def test_a_slow_stage_gets_fewer_layers():
    sizes = [end - first for first, end in balance([1.0] * 12, 4, [1.0, 2.0, 1.0, 1.0])]
    assert sizes[1] <= 2
    assert max(sizes) == 4


@pytest.mark.parametrize("slowness", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_a_slowness_for_each_stage_is_wanted(slowness):
    with pytest.raises(ValueError, match="slowness"):
        balance([1.0, 1.0], 2, slowness)
