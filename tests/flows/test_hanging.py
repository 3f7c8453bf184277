"""When a silent run counts as hung; without processes."""

from dataclasses import replace

import pytest

from cnai.core.events import Finding, RankStood
from cnai.flows.hanging import HangWatch
from cnai.train.standing import Standing
from fault_case import Told

STALL = Finding(time_unix=0.0, detector="stalled", severity="critical", message="no step")
PAGE = Standing(moves=9, pid=1, step=8, phase="data", since_unix=0.0, host="node-a")
WAITS = RankStood(
    time_unix=0.0, rank=0, attempt=0, look=0, host="node-a", step=8, phase="collective",
    phase_seconds=9.0, process="S", busy=0.0, enqueued={"0": 4},
    stack=("/v/torch/distributed/distributed_c10d.py:1 all_reduce",),
)  # fmt: skip
HANGS = replace(
    WAITS, rank=1, phase="data", enqueued={"0": 3}, stack=("/home/me/store.py:7 fetch",)
)


class Ranks:
    """Ranks that stand as they are told to; pages are asked for before and after two looks."""

    def __init__(self, *looks, pages=((PAGE, PAGE),)):
        self._looks = list(looks) or [(WAITS, HANGS)]
        self._pages = list(pages)

    def ask(self, _attempt, _ranks):
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def moves(self, _ranks):
        return self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]


class Agent:
    def __init__(self):
        self.events = []

    def write(self, event):
        self.events.append(event)


class Now:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr("cnai.flows.hanging.time.sleep", lambda _: None)

    def make(ranks):
        agent, told, now = Agent(), Told(), Now()
        watch = HangWatch(ranks, agent, told, again_seconds=60.0, clock=now)
        return watch, agent, told, now

    return make


def test_nobody_looks_before_a_stall_is_told(made):
    watch, agent, _, _ = made(Ranks())
    assert watch.look(0, 2) is None
    assert agent.events == []


def test_a_rank_that_stands_still_is_named_and_kept(made):
    watch, agent, told, _ = made(Ranks())
    watch.hear_stall(STALL)
    assert watch.look(0, 2).rank == 1
    *stood, finding = agent.events
    assert [one.rank for one in stood] == [0, 1]
    assert (finding.detector, finding.severity, finding.rank) == ("hung", "critical", 1)
    assert told.lines[0].startswith("hung: rank 1")


def test_a_step_ends_the_suspicion(made):
    watch, _, _, _ = made(Ranks())
    watch.hear_stall(STALL)
    watch.hear_step(None)
    assert watch.look(0, 2) is None


def test_a_page_that_moves_is_life(made):
    later = replace(PAGE, moves=10)
    watch, agent, told, now = made(Ranks(pages=[(PAGE, PAGE), (PAGE, later), (later, later)]))
    watch.hear_stall(STALL)
    assert watch.look(0, 2) is None
    assert (agent.events, "go on" in told.lines[0]) == ([], True)
    now.seconds = 30.0
    assert watch.look(0, 2) is None
    now.seconds = 61.0
    assert watch.look(0, 2).rank == 1


def test_collectives_that_are_begun_are_life(made):
    more = replace(WAITS, enqueued={"0": 5})
    watch, _, _, _ = made(Ranks((WAITS, HANGS), (more, HANGS)))
    watch.hear_stall(STALL)
    assert watch.look(0, 2) is None


def test_a_rank_that_ended_just_now_is_no_hang(made):
    watch, _, _, _ = made(Ranks((WAITS, replace(HANGS, process="gone"))))
    watch.hear_stall(STALL)
    assert watch.look(0, 2) is None


def test_a_rank_that_is_known_to_have_left_is_the_root(made):
    watch, _, _, _ = made(Ranks((WAITS, replace(HANGS, process="gone"))))
    watch.hear_stall(STALL)
    assert watch.look(0, 2, {1}).rank == 1


def test_a_rank_that_computes_is_warned_of_first_and_ended_after_five_looks(made):
    watch, agent, _, now = made(Ranks((WAITS, replace(HANGS, busy=0.9, phase="forward"))))
    watch.hear_stall(STALL)
    ended = []
    for look in range(5):
        now.seconds = look * 61.0
        ended.append(watch.look(0, 2))
    assert [one is None for one in ended] == [True, True, True, True, False]
    severities = [one.severity for one in agent.events if isinstance(one, Finding)]
    assert severities == ["warning", "critical"]


def test_a_new_attempt_begins_anew(made):
    watch, _, _, _ = made(Ranks())
    watch.hear_stall(STALL)
    watch.reset()
    assert watch.look(1, 2) is None


@pytest.mark.parametrize("phase", ["save", "load", "evaluate", "start"])
def test_work_that_may_be_long_is_given_more_time(made, phase):
    watch, agent, _, _ = made(Ranks((WAITS, replace(HANGS, phase=phase))))
    watch.hear_stall(STALL)
    assert watch.look(0, 2) is None
    assert agent.events[-1].severity == "warning"


def test_a_store_that_answers_no_rank_is_given_more_time(made):
    watch, _, _, _ = made(Ranks((replace(HANGS, rank=0), HANGS)))
    watch.hear_stall(STALL)
    assert watch.look(0, 2) is None


def test_a_process_that_was_stopped_is_not_waited_for(made):
    watch, _, _, _ = made(Ranks((WAITS, replace(HANGS, process="T", phase="forward"))))
    watch.hear_stall(STALL)
    assert watch.look(0, 2).rank == 1
