import numpy as np
import pytest

from cnai.core.errors import SpecError
from cnai.schedule.actions import Preempt, Start
from cnai.schedule.decide import decide
from cnai.schedule.policies.adaptive import Adaptive
from cnai.schedule.queues import Queue, Queues, Quota
from schedule_case import add, view_of


def test_a_limit_holds_for_the_queue_and_those_around_it():
    queues = Queues([Queue(name="all", limit_milli=3000), Queue(name="a", parent="all")])
    quota = Quota(queues, {"a": 2000})
    assert quota.blocker("a", 1000) is None
    assert quota.blocker("a", 1001) == "all"


def test_a_queue_that_nobody_declared_has_no_limit():
    assert Quota(Queues([Queue(name="a", limit_milli=1)]), {}).blocker("b", 10**9) is None


@pytest.mark.parametrize(
    "queues",
    [
        [Queue(name="a", parent="b"), Queue(name="b", parent="a")],
        [Queue(name="a", parent="a")],
        [Queue(name="a", parent="gone")],
    ],
)
def test_a_queue_inside_itself_or_nothing_is_a_mistake(queues):
    with pytest.raises(SpecError, match="queue `a`"):
        Queues(queues)


def test_old_use_counts_half_after_a_half_life():
    queues = Queues([Queue(name="a")], half_life_seconds=100)
    queues.charge({"a": 1000}, 1)
    queues.charge({}, 100)
    assert queues.used["a"] == pytest.approx(500)


def test_usage_is_over_weight():
    queues = Queues([Queue(name="a", weight=2), Queue(name="b")])
    queues.charge({"a": 1000, "b": 1000}, 10)
    assert queues.usage(["a", "b"]).tolist() == [0.5, 1.0]


def test_jobs_fill_the_guarantee_from_the_lowest_class():
    queues = Queues([Queue(name="a", guaranteed_milli=2000)])
    inside = queues.within_guarantee(
        ["a"], np.zeros(3, np.int64), np.full(3, 1000.0), np.array([3.0, 1.0, 2.0])
    )
    assert inside.tolist() == [False, True, True]


def test_a_queue_gets_its_guarantee_back_from_one_that_borrowed():
    view = view_of(4, queues=[Queue(name="a", guaranteed_milli=2000), Queue(name="b")])
    policy = Adaptive()
    for place in range(4):
        add(view, f"b{place}", queue="b")
    for action in decide(view, 0.0, policy):
        view.apply(action, view.jobs.place_of(action.job), 0.0)
    add(view, "a0", workers=2, queue="a", now=10.0)
    actions = decide(view, 10.0, policy)
    assert sum(isinstance(one, Preempt) for one in actions) == 2
    assert [one.job for one in actions if isinstance(one, Start)] == ["a0"]


def test_beyond_its_guarantee_a_queue_pushes_nobody_out():
    view = view_of(2, queues=[Queue(name="a", guaranteed_milli=1000), Queue(name="b")])
    policy = Adaptive()
    add(view, "b0", workers=2, queue="b")
    view.apply(decide(view, 0.0, policy)[0], 0, 0.0)
    add(view, "a0", workers=2, queue="a", now=1.0)
    assert decide(view, 1.0, policy) == []
