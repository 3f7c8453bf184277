"""What must hold whatever happens, over many random events."""

import numpy as np
import pytest

from cnai.schedule.actions import Preempt, Resize, Start
from cnai.schedule.decide import decide
from cnai.schedule.demand import Demand
from cnai.schedule.policies import POLICIES, make_policy
from cnai.schedule.policies.preemptive import quota_of
from cnai.schedule.queues import Queues
from cnai.schedule.simulation.engine import Simulation
from schedule_case import QUEUES, cluster, random_jobs, random_node_events

ONLINE = [name for name in POLICIES if name not in {"easy", "sjf", "srsf"}]
SEEN = (Demand(gpus=1), Demand(gpus=4), Demand(gpus=1, gpu_milli=500))


class Watcher:
    """Looks at every decision before it is carried out."""

    def __init__(self):
        self.decisions = 0
        self.actions = []

    def __call__(self, view, now, actions):
        self.decisions += 1
        self.actions += actions
        rows = {row.name: place for place, row in enumerate(view.jobs.rows)}
        for action in actions:
            place = rows[action.job]
            row = view.jobs.rows[place]
            assert action.reason.code
            if isinstance(action, Start):
                assert not view.jobs.slots[place]
            if isinstance(action, Preempt):
                assert view.jobs.slots[place]
            if isinstance(action, (Start, Resize)):
                workers = sum(slot.workers for slot in action.slots)
                if row.elastic:
                    assert (row.least or 1) <= workers <= (row.most or workers)
                    assert workers % row.unit == 0
                else:
                    assert workers == row.workers
        self.check_machines(view)

    @staticmethod
    def check_machines(view):
        held = sum(
            len(slot.gpus) * view.jobs.rows[place].demand.gpu_milli
            for place, slots in enumerate(view.jobs.slots)
            for slot in slots
        )
        assert int(view.nodes.gpu_total.sum()) + held == int(view.nodes.gpus.sum()) * 1000
        for column in (view.nodes.gpu_left, view.nodes.cpu_left, view.nodes.memory_left):
            assert (column >= 0).all()
        quota = quota_of(view)
        for name in quota.held if quota else ():
            limit = view.queues.queue(name).limit_milli
            assert limit is None or quota.held[name] <= limit


def run(policy, seed, *, queues=(), events=0, count=60):
    names = tuple(queue.name for queue in queues if queue.parent) or ("",)
    watcher = Watcher()
    outcome = Simulation(
        nodes=cluster(8, 8, 4, 4, micros_per_gpu_hour=1_234_567),
        jobs=random_jobs(seed, count, queues=names),
        policy=make_policy(policy, SEEN, seed),
        queues=Queues(queues),
        node_events=random_node_events(seed, 4, events),
        on_decision=watcher,
    ).run()
    return outcome, watcher


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ONLINE)
def test_nothing_is_given_twice_no_gang_is_torn_and_every_job_ends(policy, seed):
    outcome, watcher = run(policy, seed, events=12)
    assert outcome.unfinished == 0
    assert len(outcome.jobs) == 60
    assert watcher.decisions > 60


@pytest.mark.parametrize("seed", range(4))
def test_limits_and_guarantees_hold_for_our_policy(seed):
    outcome, _ = run("cnai", seed, queues=QUEUES, events=6)
    assert outcome.unfinished == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", ["cnai", "las", "backfill"])
def test_money_is_conserved_to_the_last_unit(policy, seed):
    outcome, _ = run(policy, seed, events=10)
    assert sum(outcome.ledger.split().values()) == outcome.ledger.billed
    assert sum(outcome.ledger.by("job").values()) <= outcome.ledger.billed
    assert sum(outcome.ledger.by("phase").values()) == sum(outcome.ledger.by("job").values())


@pytest.mark.parametrize("policy", ["cnai", "random"])
def test_the_same_seed_gives_the_same_actions(policy):
    _, one = run(policy, 5, events=5)
    _, other = run(policy, 5, events=5)
    assert one.actions == other.actions


def test_a_decision_changes_nothing_and_can_be_made_again():
    def again(view, now, actions):
        before = {
            name: column.copy()
            for name, column in vars(view.nodes).items()
            if isinstance(column, np.ndarray)
        }
        assert decide(view, now, make_policy("cnai", SEEN)) is not None
        for name, column in before.items():
            assert (getattr(view.nodes, name) == column).all(), name

    Simulation(
        nodes=cluster(8, 4),
        jobs=random_jobs(1, 40),
        policy=make_policy("cnai", SEEN),
        on_decision=again,
    ).run()


def test_a_policy_does_not_see_how_long_jobs_will_take():
    def first_actions(factor):
        watcher = Watcher()
        jobs = random_jobs(3, 40)
        longer = [
            type(one)(
                name=one.name,
                arrives=one.arrives,
                phases=tuple(
                    type(p)(row=p.row, seconds=p.seconds * factor + 40_000) for p in one.phases
                ),
            )
            for one in jobs
        ]
        Simulation(
            nodes=cluster(8, 8),
            jobs=longer,
            policy=make_policy("cnai", SEEN),
            on_decision=watcher,
            until=30_000,
        ).run()
        return watcher.actions

    assert first_actions(1) == first_actions(2)


@pytest.mark.slow
def test_a_hundred_thousand_random_events_break_nothing():
    decisions = 0
    for seed in range(100, 400):
        queues = QUEUES if seed % 2 else ()
        outcome, watcher = run("cnai", seed, queues=queues, events=seed % 20, count=150)
        assert outcome.unfinished == 0
        decisions += watcher.decisions
    assert decisions > 100_000
