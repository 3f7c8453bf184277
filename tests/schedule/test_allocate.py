import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import ClusterError
from cnai.core.fleet import Fleet, Node, Phase
from cnai.schedule import allocate


def machines(*devices, kind="H100-80GB"):
    return Fleet(
        nodes=tuple(
            Node(
                name=f"node-{index}",
                cpus=8,
                memory_bytes=2**34,
                device_kind=kind,
                devices=count,
                device_memory_bytes=2**34,
            )
            for index, count in enumerate(devices)
        )
    )


def mixed(gpu, cpu):
    return Fleet(nodes=machines(gpu).nodes + machines(0, cpu, kind="cpu").nodes[1:])


def placed(allocation):
    return [rank for share in allocation.shares for rank in share.ranks]


@given(st.lists(st.integers(0, 8), max_size=6), st.integers(1, 32), st.sampled_from([1, 2, 4]))
def test_either_all_ranks_are_placed_once_in_order_or_none(devices, ranks, group):
    fleet = machines(*devices)
    try:
        allocation = allocate("r", Phase.TRAIN, ranks, fleet, group=group)
    except ClusterError:
        return
    assert placed(allocation) == list(range(ranks))
    size = {node.name: node.devices for node in fleet.nodes}
    assert all(len(share.ranks) <= size[share.node] for share in allocation.shares)
    assert len({share.node for share in allocation.shares}) == len(allocation.shares)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.data())
def test_without_groups_the_fewest_nodes_are_used(devices, data):
    ranks = data.draw(st.integers(1, sum(devices)))
    fewest, room = 0, 0
    for count in sorted(devices, reverse=True):
        if room >= ranks:
            break
        fewest, room = fewest + 1, room + count
    allocation = allocate("r", Phase.TRAIN, ranks, machines(*devices))
    assert len(allocation.shares) == fewest


@given(st.lists(st.integers(4, 8), min_size=1, max_size=6), st.integers(1, 6))
def test_a_group_never_leaves_its_node(devices, groups):
    try:
        allocation = allocate("r", Phase.TRAIN, 4 * groups, machines(*devices), group=4)
    except ClusterError:
        return
    assert all(len(share.ranks) % 4 == 0 for share in allocation.shares)


def test_the_last_ranks_go_to_the_smallest_node_that_holds_them():
    allocation = allocate("r", Phase.TRAIN, 10, machines(8, 8, 2))
    assert [share.node for share in allocation.shares] == ["node-0", "node-2"]


def test_too_few_places_say_how_many_are_missing():
    with pytest.raises(
        ClusterError, match=r"needs 16 places, .* 12 devices give 12: 4 are missing"
    ):
        allocate("r", Phase.TRAIN, 16, machines(8, 4))


def test_places_that_groups_cannot_use_count_as_missing():
    with pytest.raises(ClusterError, match=r"groups of 4.* give 4: 4 are missing"):
        allocate("r", Phase.TRAIN, 8, machines(6, 3), group=4)


def test_a_group_larger_than_every_node_is_torn_and_said_so():
    allocation = allocate("r", Phase.TRAIN, 8, machines(4, 4), group=8)
    assert "no node holds a group of 8" in allocation.reason


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.TRAIN])
def test_every_other_phase_takes_one_place_on_a_cpu_machine(phase):
    allocation = allocate("r", phase, 64, mixed(8, 4))
    assert placed(allocation) == [0]
    assert allocation.shares[0].node == "node-1"


def test_training_prefers_devices_to_cpu_machines():
    allocation = allocate("r", Phase.TRAIN, 2, mixed(2, 64))
    assert [share.node for share in allocation.shares] == ["node-0"]


def test_no_machine_at_all_is_an_error_with_exit_code_7():
    with pytest.raises(ClusterError) as caught:
        allocate("r", Phase.SERVE, 1, Fleet(nodes=()))
    assert caught.value.exit_code == 7


def test_the_same_question_gets_the_same_answer():
    first, second = (allocate("r", Phase.TRAIN, 9, machines(4, 8, 4)) for _ in range(2))
    assert first == second


def test_scheduling_does_not_load_torch():
    code = "import sys, cnai.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
