from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.events import RankStood
from cnai.diagnose.standing import locate

REDUCE = ("/v/torch/distributed/distributed_c10d.py:3 all_reduce", "/x/cnai/train/ranks.py:5 total")


def waits(rank, **changes):
    stood = RankStood(
        time_unix=1.0, rank=rank, attempt=0, look=0, host="node-a", step=8, phase="collective",
        phase_seconds=9.0, process="S", busy=0.0, enqueued={"0": 30}, collective="all_reduce [4]",
        stack=REDUCE,
    )  # fmt: skip
    return replace(stood, **changes)


def in_data(rank, **changes):
    stack = ("/home/me/store.py:7 fetch",)
    return waits(rank, phase="data", stack=stack, enqueued={"0": 29}, **changes)


def test_nobody_hangs_without_ranks():
    assert locate([]) is None


def test_the_rank_that_is_in_no_collective_holds_up_the_others():
    found = locate([waits(0), in_data(1), waits(2)])
    assert (found.rank, found.phase, found.frame) == (1, "data", "/home/me/store.py:7")
    assert found.waiting == (0, 2)


def test_the_summary_names_rank_machine_step_phase_and_frame():
    said = locate([waits(0), in_data(1)]).summary
    for word in ("rank 1", "node-a", "step 8", "data", "/home/me/store.py:7"):
        assert word in said


def test_a_stopped_process_is_named_though_it_gives_no_stack():
    found = locate([waits(0), waits(1, process="T", phase="forward", stack=(), enqueued={})])
    assert (found.rank, found.frame) == (1, None)


def test_a_rank_that_waits_for_a_disk_makes_it_a_fault_of_the_store():
    found = locate([waits(0), in_data(1, process="D"), waits(2, phase="forward")])
    assert (found.rank, found.fault) == (1, "storage_io_error")


def test_when_all_wait_it_is_the_one_that_has_begun_fewer_collectives():
    found = locate([waits(0), waits(1), waits(2, enqueued={"0": 29})])
    assert (found.rank, "29" in found.why) == (2, True)


def test_when_all_have_begun_as_many_it_is_the_one_that_waits_elsewhere():
    elsewhere = ("/v/torch/distributed/distributed_c10d.py:9 recv", "/home/me/a.py:1 f")
    assert locate([waits(0), waits(1, stack=elsewhere), waits(2)]).rank == 1


def test_when_all_wait_in_one_place_the_odd_shape_is_suspected():
    assert locate([waits(0), waits(1, odd=True)]).rank == 1


def test_when_nothing_tells_them_apart_no_rank_is_blamed():
    found = locate([waits(0), waits(1)])
    assert (found.rank, found.confidence <= 0.3) == (None, True)


def test_ranks_that_all_wait_for_data_blame_the_store():
    found = locate([in_data(0), in_data(1)])
    assert (found.rank, found.fault) == (None, "storage_io_error")


def test_a_rank_that_has_left_is_named_while_the_others_wait():
    assert locate([waits(0), waits(1, phase="done", process="gone", stack=())]).rank == 1


def test_of_two_suspects_the_one_that_is_behind_is_named_with_less_confidence():
    found = locate([in_data(0), in_data(1, step=7), waits(2)])
    assert (found.rank, found.confidence < 0.9) == (1, True)
    assert "ranks 0" in found.why


def test_a_run_of_one_rank_names_it():
    assert locate([in_data(0)]).rank == 0


def test_ranks_that_stand_alike_are_told_once_and_the_smallest_group_first():
    evidence = locate([waits(0), in_data(1), waits(2), waits(3)]).evidence
    assert len(evidence) == 2
    assert evidence[0].startswith("rank 1 stands in phase data")
    assert evidence[1].startswith("ranks 0, 2, 3 stand in phase collective")


@pytest.mark.parametrize("guilty", range(4))
def test_the_order_of_the_ranks_does_not_matter(guilty):
    ranks = [in_data(rank) if rank == guilty else waits(rank) for rank in range(4)]
    assert locate(ranks[::-1]).rank == locate(ranks).rank == guilty


@given(
    st.lists(
        st.builds(
            waits,
            st.integers(0, 9),
            phase=st.sampled_from(["data", "collective", "forward", "done", "save"]),
            process=st.sampled_from(["R", "S", "D", "T", "gone"]),
            step=st.integers(0, 3),
            enqueued=st.dictionaries(st.sampled_from("03"), st.integers(0, 5)),
            stack=st.sampled_from([(), REDUCE, ("/home/me/a.py:1 f",)]),
            odd=st.booleans(),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda one: one.rank,
    )
)
def test_whatever_was_seen_a_rank_that_is_named_was_seen(stood):
    found = locate(stood)
    ranks = {one.rank for one in stood}
    assert found.rank is None or found.rank in ranks
    assert set(found.waiting) <= ranks - {found.rank}
    assert 0 < found.confidence <= 1
