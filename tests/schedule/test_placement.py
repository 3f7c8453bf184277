import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.schedule.demand import Demand, Slot
from cnai.schedule.nodes import Nodes
from cnai.schedule.placement.fragmentation import Fragmentation
from cnai.schedule.placement.gang import place_gang
from cnai.schedule.placement.scores import AnyFit, BestFit, QuantisedGradient
from schedule_case import GPU, cluster, node

DEMANDS = [
    GPU, Demand(gpus=2, cpu_milli=9000), Demand(gpus=8), Demand(cpu_milli=4000),
    Demand(gpus=1, gpu_milli=250, cpu_milli=1000), Demand(gpus=1, gpu_milli=810),
]  # fmt: skip


def scorers():
    return [BestFit(), QuantisedGradient(Fragmentation(DEMANDS)), AnyFit(0)]


def test_one_worker_goes_where_least_is_left():
    nodes = Nodes(cluster(8, 2, 4))
    assert BestFit().choose(nodes, Demand(gpus=2)) == Slot(1, 1, (0, 1))


def test_of_equal_nodes_the_first_is_taken():
    assert BestFit().choose(Nodes(cluster(4, 4)), GPU).node == 0


def test_the_gradient_keeps_a_whole_node_for_those_who_need_it():
    nodes = Nodes(cluster(8, 8))
    nodes.take(GPU, (Slot(1, 1, (0,)),))
    often = Fragmentation([Demand(gpus=8)] * 5 + [GPU])
    assert QuantisedGradient(often).choose(nodes, GPU).node == 1


def test_a_share_goes_where_the_rest_is_of_use():
    nodes = Nodes(cluster(2))
    nodes.take(Demand(gpus=1, gpu_milli=600), (Slot(0, 1, (1,)),))
    usual = Fragmentation([Demand(gpus=1, gpu_milli=400), GPU])
    assert QuantisedGradient(usual).choose(nodes, Demand(gpus=1, gpu_milli=400)).gpus == (1,)


@pytest.mark.parametrize("scorer", scorers(), ids=lambda one: type(one).__name__)
def test_nothing_is_chosen_where_nothing_fits(scorer):
    assert scorer.choose(Nodes(cluster(4, 4)), Demand(gpus=5)) is None


@pytest.mark.parametrize("scorer", scorers(), ids=lambda one: type(one).__name__)
def test_an_empty_cluster_is_no_trouble(scorer):
    assert scorer.choose(Nodes(()), GPU) is None


@given(st.lists(st.integers(0, len(DEMANDS) - 1), max_size=60), st.integers(0, 1))
def test_kept_scores_are_those_that_a_fresh_look_gives(order, which):
    nodes = Nodes(cluster(8, 8, 4, 2))
    kept = scorers()[which]
    held = []
    for step, number in enumerate(order):
        demand = DEMANDS[number]
        if step % 5 == 4 and held:
            nodes.give(*held.pop(0))
        slot = kept.choose(nodes, demand)
        assert slot == scorers()[which].choose(nodes, demand)
        if slot:
            nodes.take(demand, (slot,))
            held.append((demand, (slot,)))


def test_the_useless_part_is_what_the_definition_says():
    usual = Fragmentation([Demand(gpus=2), Demand(gpus=1, gpu_milli=500), Demand(cpu_milli=1)])
    left = np.array([[1000, 700, 300, 0]])
    packed = usual.table[left].sum(axis=1, dtype=np.int32)
    # Two whole GPUs do not fit: 2000 are useless. A half fits, but not into 300. CPU work: all.
    expected = (2000 + 300 + 2000) / 3
    useless = usual.useless(packed, np.array([10]), np.array([2000]), np.ones((1, 2), np.bool_))
    assert useless == pytest.approx([expected])


def test_rare_demands_do_not_count_as_typical():
    usual = Fragmentation([GPU] * 99 + [Demand(gpus=8)])
    assert usual.gpus.tolist() == [1]


def test_a_gang_that_fits_on_one_node_is_not_spread():
    slots = place_gang(Nodes(cluster(4, 8, 4)), GPU, 6, BestFit())
    assert [slot.node for slot in slots] == [1]


def test_a_gang_stays_in_one_rack_where_one_is_large_enough():
    rows = [node(f"n{place}", 8, rack=f"r{place // 2}") for place in range(6)]
    nodes = Nodes(rows)
    nodes.take(GPU, (Slot(0, 1, (0,)),))
    slots = place_gang(nodes, GPU, 16, BestFit())
    assert {slot.node // 2 for slot in slots} in ({1}, {2})


def test_the_tightest_rack_that_holds_a_gang_is_taken():
    rows = [node(f"n{place}", 8, rack=f"r{place // 3}") for place in range(3)]
    rows += [node("x", 8, rack="tight"), node("y", 8, rack="tight")]
    assert {slot.node for slot in place_gang(Nodes(rows), GPU, 12, BestFit())} == {3, 4}


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8), st.integers(1, 40), st.integers(1, 3))
def test_a_gang_is_placed_whole_exactly_when_there_is_room(sizes, workers, gpus):
    nodes = Nodes(cluster(*sizes))
    demand = Demand(gpus=gpus)
    slots = place_gang(nodes, demand, workers, BestFit())
    if sum(size // gpus for size in sizes) < workers:
        assert slots is None
        return
    nodes.take(demand, slots)
    assert sum(slot.workers for slot in slots) == workers
    assert all(len(slot.gpus) == gpus * slot.workers for slot in slots)
