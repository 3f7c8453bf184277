from hypothesis import given
from hypothesis import strategies as st

from cnai.core.fleet import Allocation, Fleet, Node, Phase, Share


def node(name="a", kind="cpu", memory=100, devices=4):
    return Node(
        name=name, cpus=8, memory_bytes=100, device_kind=kind, devices=devices,
        device_memory_bytes=memory,
    )  # fmt: skip


def test_devices_are_counted_over_all_nodes():
    assert Fleet(nodes=(node("a"), node("b", devices=2))).devices == 6


def test_a_gpu_belongs_to_one_rank():
    fleet = Fleet(nodes=(node(kind="H100-80GB", memory=80), node("b", kind="H100-80GB", memory=80)))
    assert fleet.rank_memory_bytes(16) == 80


def test_the_smallest_device_counts():
    fleet = Fleet(nodes=(node(kind="A", memory=80), node("b", kind="B", memory=40)))
    assert fleet.rank_memory_bytes(2) == 40


@given(st.integers(1, 64), st.integers(1, 8))
def test_the_ranks_of_a_cpu_machine_share_its_memory(ranks, nodes):
    fleet = Fleet(nodes=tuple(node(str(i), memory=10_000) for i in range(nodes)))
    assert fleet.rank_memory_bytes(ranks) * -(-ranks // nodes) <= 10_000


def test_an_allocation_counts_its_ranks():
    shares = (Share(node="a", ranks=(0, 1)), Share(node="b", ranks=(2,)))
    assert Allocation(run="r", phase=Phase.TRAIN, shares=shares, reason="x").ranks == 3
