import pytest

from cnai.core.errors import DataError, SpecError
from cnai.core.records import decode, encode
from cnai.schedule.demand import Demand, Slot
from cnai.schedule.explain import explain
from cnai.schedule.queues import Queue
from cnai.schedule.state import ClusterState, JobState, state_of, view_of
from schedule_case import GPU, add, cluster
from schedule_case import view_of as small


def hold(view, name, workers, seconds=100.0, **more):
    place = add(view, name, workers, declared_seconds=seconds, **more)
    slot = view.nodes.slot(0, GPU, workers)
    view.nodes.take(GPU, (slot,))
    view.jobs.slots[place] = (slot,)
    view.jobs.workers[place] = workers
    view.jobs.state[place] = 1
    return place


def test_a_job_that_runs_is_told_as_running():
    view = small(8)
    hold(view, "a", 2)
    assert explain(view, "a").code == "running"


def test_room_that_others_hold_is_told_with_who_and_until_when():
    view = small(8)
    hold(view, "soon", 4, 60.0)
    hold(view, "late", 2, 600.0)
    add(view, "me", 6)
    found = explain(view, "me")
    assert (found.code, found.blockers, found.start_in_seconds) == ("no_room", ("soon",), 60.0)
    assert found.change == "ask for 2 workers: they would start now"


def test_the_change_that_is_named_lets_it_start():
    view = small(4, 4)
    hold(view, "a", 3)
    add(view, "me", 8)
    workers = int(explain(view, "me").change.split()[2])
    add(view, "smaller", workers)
    assert explain(view, "smaller").code == "next"


@pytest.mark.parametrize(
    ("demand", "workers", "code"),
    [
        (Demand(gpus=1, models=("H100",)), 1, "no_model"),
        (Demand(gpus=9), 1, "no_node"),
        (Demand(gpus=1, memory_mib=2**30), 1, "no_node"),
        (GPU, 17, "too_large"),
    ],
)
def test_what_can_never_start_says_so(demand, workers, code):
    view = small(8, 8)
    add(view, "me", workers, demand)
    found = explain(view, "me")
    assert (found.code, found.start_in_seconds) == (code, None)
    assert found.change


def test_a_limit_of_a_queue_comes_before_the_lack_of_room():
    view = small(8, queues=[Queue(name="q", limit_milli=4000)])
    hold(view, "a", 3, 50.0, queue="q")
    add(view, "me", 2, queue="q")
    found = explain(view, "me")
    assert (found.code, found.blockers, found.start_in_seconds) == ("queue_limit", ("a",), 50.0)
    assert "5 GPUs" in found.change


def test_explaining_changes_nothing():
    view = small(8)
    hold(view, "a", 4)
    add(view, "me", 6)
    before = view.nodes.gpu_left.copy()
    explain(view, "me")
    assert (view.nodes.gpu_left == before).all()


def test_a_job_that_is_not_there_is_a_mistake():
    view = small(8)
    add(view, "a")
    with pytest.raises(SpecError, match="no job is called `b`") as error:
        explain(view, "b")
    assert "a" in error.value.hint


def test_a_cluster_is_the_same_after_writing_and_reading():
    view = small(8, queues=[Queue(name="q", limit_milli=4000)])
    hold(view, "a", 3, 50.0, queue="q")
    add(view, "me", 6, queue="q")
    state = state_of(view, tuple(cluster(8)), 7.0)
    again = decode(ClusterState, encode(state), where="x")
    assert again == state
    assert explain(view_of(again, "x"), "me") == explain(view, "me")


@pytest.mark.parametrize("slot", [Slot(0, 2, (0, 0)), Slot(5, 1, (0,)), Slot(0, 1, (9,))])
def test_a_state_that_gives_away_too_much_is_told(slot):
    torn = JobState(name="a", demand=GPU, workers=slot.workers, slots=(slot,))
    state = ClusterState(now=0, nodes=tuple(cluster(8)), jobs=(torn,))
    with pytest.raises(DataError, match="job `a` holds"):
        view_of(state, "state.json")
