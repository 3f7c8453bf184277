from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.plan import DEVICES
from cnai.plan.collectives import (
    Group,
    exchange_seconds,
    gather_seconds,
    latency,
    send_seconds,
    sum_seconds,
)

A100 = DEVICES["A100-80GB"]
BIG = 1e9


def test_alone_nothing_is_sent():
    assert gather_seconds(A100, 8, Group(members=1), BIG) == 0
    assert exchange_seconds(A100, 8, Group(members=1), BIG) == 0


def test_in_a_node_a_gather_moves_all_but_its_own_part_over_the_link():
    found = gather_seconds(A100, 8, Group(members=8), BIG)
    rate = 300e9 * A100.constants.node
    assert found == pytest.approx(BIG * 7 / 8 / rate + latency(A100, 8, Group(members=8)))


def test_a_sum_is_a_scatter_and_a_gather():
    group = Group(members=4, stride=2)
    assert sum_seconds(A100, 8, group, BIG) == 2 * gather_seconds(A100, 8, group, BIG)


def test_members_of_a_node_use_its_cards_together():
    spread = gather_seconds(A100, 8, Group(members=16, stride=8), BIG)
    together = gather_seconds(A100, 8, Group(members=128), BIG)
    assert together < spread


def test_a_group_with_wide_steps_leaves_the_node():
    near, far = Group(members=2, stride=4), Group(members=2, stride=8)
    assert gather_seconds(A100, 8, far, BIG) > gather_seconds(A100, 8, near, BIG)


def test_a_faster_network_helps_only_groups_that_use_it():
    fast = replace(A100, network_bytes_per_second=A100.network_bytes_per_second * 4)
    near, far = Group(members=8), Group(members=8, stride=8)
    assert gather_seconds(fast, 8, near, BIG) == gather_seconds(A100, 8, near, BIG)
    assert gather_seconds(fast, 8, far, BIG) < gather_seconds(A100, 8, far, BIG)


def test_a_neighbour_in_the_node_is_reached_faster():
    assert send_seconds(A100, 8, 1, BIG) < send_seconds(A100, 8, 8, BIG)


@given(
    members=st.integers(2, 512),
    stride=st.sampled_from([1, 2, 4, 8, 16]),
    payload=st.floats(1, 1e12),
)
def test_more_bytes_never_take_less_time(members, stride, payload):
    group = Group(members=members, stride=stride)
    for seconds in (gather_seconds, sum_seconds, exchange_seconds):
        assert seconds(A100, 8, group, payload) <= seconds(A100, 8, group, 2 * payload)
