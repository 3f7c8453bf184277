import numpy as np
import pytest

from cnai.schedule.demand import Demand, Slot
from cnai.schedule.nodes import Nodes, OverCommitError, trial_of
from schedule_case import GPU, cluster, node

HALF = Demand(gpus=1, gpu_milli=500)


def test_what_is_taken_is_gone_and_what_is_given_back_is_there():
    nodes = Nodes(cluster(8))
    nodes.take(GPU, (Slot(0, 2, (0, 1)),))
    assert (nodes.whole[0], nodes.free_milli) == (6, 6000)
    nodes.give(GPU, (Slot(0, 2, (0, 1)),))
    assert (nodes.whole[0], nodes.free_milli) == (8, 8000)


def test_a_gpu_that_is_held_cannot_be_taken_again():
    nodes = Nodes(cluster(2))
    nodes.take(GPU, (Slot(0, 1, (0,)),))
    with pytest.raises(OverCommitError):
        nodes.take(GPU, (Slot(0, 1, (0,)),))


def test_a_gang_that_does_not_fit_takes_nothing():
    nodes = Nodes(cluster(2, 1))
    with pytest.raises(OverCommitError):
        nodes.take(GPU, (Slot(0, 1, (0,)), Slot(1, 2, (0, 1))))
    assert nodes.free_milli == 3000


def test_two_halves_share_a_gpu_and_a_third_does_not():
    nodes = Nodes(cluster(1))
    nodes.take(HALF, (Slot(0, 2, (0, 0)),))
    assert not nodes.can_take(HALF, Slot(0, 1, (0,)))


def test_a_share_goes_on_the_fullest_gpu_that_has_room():
    nodes = Nodes(cluster(3))
    nodes.take(HALF, (Slot(0, 1, (2,)),))
    assert nodes.slot(0, HALF, 1).gpus == (2,)


def test_a_place_that_a_node_lacks_is_never_free():
    nodes = Nodes(cluster(8, 2))
    assert nodes.free_gpus(1, 8) == (0, 1)


def test_a_node_that_is_gone_fits_nothing():
    nodes = Nodes(cluster(8))
    nodes.set_up(0, up=False)
    assert not nodes.fits(GPU).any()
    assert nodes.room(GPU).sum() == 0
    assert nodes.capacity_milli == 0


def test_only_nodes_with_the_model_fit():
    nodes = Nodes([node("a", model="T4"), node("b", model="A100")])
    assert nodes.fits(Demand(gpus=1, models=("A100",))).tolist() == [False, True]


@pytest.mark.parametrize(
    ("demand", "workers"),
    [
        (Demand(gpus=2), 4),
        (Demand(gpus=1, cpu_milli=16_000), 4),
        (Demand(gpus=1, memory_mib=2**17), 2),
        (Demand(gpus=1, gpu_milli=300), 24),
        (Demand(cpu_milli=1000), 64),
    ],
)
def test_the_room_of_a_node_is_what_the_scarcest_resource_allows(demand, workers):
    assert Nodes(cluster(8)).room(demand).tolist() == [workers]


def take_twice(nodes):
    with trial_of(nodes) as trial:
        trial.take(GPU, (Slot(0, 1, (3,)),))
        trial.take(GPU, (Slot(0, 1, (3,)),))


def test_a_trial_leaves_everything_as_it_was_even_after_an_error():
    nodes = Nodes(cluster(8))
    before = nodes.gpu_left.copy()
    with pytest.raises(OverCommitError):
        take_twice(nodes)
    assert np.array_equal(nodes.gpu_left, before)
    assert nodes.whole[0] == 8


def test_nodes_without_a_rack_are_each_their_own():
    assert len(set(Nodes(cluster(1, 1, 1)).rack.tolist())) == 3
