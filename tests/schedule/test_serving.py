import numpy as np
import pytest

from cnai.schedule.actions import SetReplicas
from cnai.schedule.decide import decide
from cnai.schedule.nodes import Nodes
from cnai.schedule.policies.hpa import Hpa
from cnai.schedule.policies.replicas import Replicas
from cnai.schedule.services import ServiceView
from cnai.schedule.simulation.serving import Load, bursty, serve_load
from cnai.schedule.view import ClusterView

HOUR = 3600.0


def flat(work, hours):
    steps = int(hours * 720)
    return Load(work=np.full(steps, float(work)), requests=np.full(steps, 100.0))


class Fixed:
    """Always as many."""

    name = "fixed"

    def __init__(self, replicas):
        self.replicas = replicas

    def decide(self, view, now, trial):
        return [SetReplicas(job="service", replicas=self.replicas, reason=None)]

    def wake(self, view, now):
        return float("inf")


def view(loads, replicas=10, **more):
    service = ServiceView(
        name="service", ready=replicas, loads=loads, late=[0.0] * len(loads), **more
    )
    return ClusterView(nodes=Nodes(()), services=[service])


def wanted(policy, service):
    actions = decide(service, 0.0, policy)
    return actions[0].replicas if actions else None


def test_enough_replicas_are_never_late():
    outcome = serve_load(flat(10, 1), Fixed(20), 60)
    assert outcome.slo == 1.0
    assert outcome.replica_hours == pytest.approx(20, rel=0.01)


def test_too_few_replicas_make_nearly_everything_late():
    assert serve_load(flat(10, 1), Fixed(9), 60).slo < 0.2


def test_a_replica_costs_from_its_order_and_answers_after_the_cold_start():
    outcome = serve_load(flat(10, 1), Fixed(40), 600)
    assert outcome.ready[:40].max() == 20
    assert outcome.ready[-1] == 40
    assert outcome.replica_hours == pytest.approx(40, rel=0.01)


def test_the_mean_of_a_made_load_is_what_was_asked_for():
    load = bursty([0, 86_400], [50, 150], replicas=20, seed=3)
    assert load.work.mean() == pytest.approx(20, rel=0.02)
    assert load.work[-720:].mean() > 2 * load.work[:720].mean()


def test_the_autoscaler_follows_its_formula():
    assert wanted(Hpa(0.5), view([10.0])) == 20


def test_the_autoscaler_leaves_small_differences_alone():
    assert wanted(Hpa(0.5), view([5.2])) is None


def test_the_autoscaler_waits_before_it_shrinks():
    policy, service = Hpa(0.5), view([10.0], replicas=20)
    wanted(policy, service)
    service.services[0].loads.append(1.0)
    assert wanted(policy, service) is None


def test_ours_keeps_what_was_needed_a_few_cold_starts_ago():
    loads = [10.0] * 60 + [2.0] * 60
    assert wanted(Replicas(), view(loads, 40, cold_start_seconds=600)) == 18
    assert wanted(Replicas(), view(loads + [2.0] * 300, 40, cold_start_seconds=600)) < 10


def test_late_requests_raise_the_margin_and_quiet_lowers_it():
    late, quiet = view([10.0] * 200, 1), view([10.0] * 200, 1)
    late.services[0].late = [0.05] * 200
    assert wanted(Replicas(), late) > wanted(Replicas(), quiet)


def test_a_day_that_repeats_is_seen_coming():
    def day(jump_at):
        return [5.0] * jump_at + [20.0] * (5760 - jump_at)

    loads = day(3000) * 3 + [5.0] * 2990
    assert wanted(Replicas(), view(loads, 1, cold_start_seconds=600)) > 20
    assert wanted(Replicas(), view([5.0] * 20_000, 1, cold_start_seconds=600)) < 12


def test_bounds_of_a_service_are_kept():
    assert wanted(Replicas(), view([10.0], 1, most=7)) == 7
    assert wanted(Replicas(), view([0.0], 9, least=3)) == 3


def test_a_service_that_never_reported_is_left_alone():
    assert decide(view([]), 0.0, Replicas()) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_ours_meets_its_goal_on_a_load_that_it_has_not_seen(seed):
    random = np.random.default_rng(seed)
    times = np.arange(0, 7 * 86_400, 600.0)
    steps = np.exp(np.cumsum(random.normal(0, 0.05, size=times.size)) * 0.3)
    rates = 100 * steps * (1 + 0.5 * np.sin(times * 2 * np.pi / 86_400))
    load = bursty(times.tolist(), rates.tolist(), replicas=20, seed=seed)
    ours = serve_load(load, Replicas(), 600)
    assert ours.slo > 0.994
    assert ours.replica_hours < serve_load(load, Hpa(0.5), 600).replica_hours
