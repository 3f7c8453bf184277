import pytest

from cnai.schedule.demand import Demand
from cnai.schedule.goodput import curve_of
from cnai.schedule.ledger import Spent, money
from cnai.schedule.policies.adaptive import Adaptive
from cnai.schedule.policies.fifo import Fifo
from cnai.schedule.simulation.engine import NodeEvent, SimulatedJob
from schedule_case import cluster, job, play


def test_a_job_ends_after_its_time():
    done, outcome = play([job("a", 100, arrives=7)], Fifo(), 1)
    assert (done["a"].wait_seconds, done["a"].completion_seconds) == (0, 100)
    assert outcome.seconds == 100


def test_a_job_that_never_fits_is_told_as_unfinished():
    _, outcome = play([job("a", 100, 9), job("b", 1)], Fifo(), 8)
    assert outcome.unfinished == 2


def test_nothing_to_do_is_no_trouble():
    _, outcome = play([], Fifo(), 8)
    assert (outcome.unfinished, outcome.summary()["mean_jct_h"]) == (0, 0.0)


def test_an_elastic_job_runs_at_the_speed_of_its_size():
    curve = curve_of({1: 1.0, 2: 2.0, 4: 4.0})
    done, _ = play([job("a", 100, 1, curve=curve, least=1, most=4)], Adaptive(), 4)
    assert done["a"].completion_seconds == pytest.approx(25)
    assert done["a"].gpu_seconds == pytest.approx(100)


def test_a_stop_costs_the_restart_and_loses_no_work():
    events = [NodeEvent(time=40, node=0, up=False), NodeEvent(time=50, node=0, up=True)]
    done, _ = play([job("a", 100)], Fifo(), 1, node_events=events, restart_seconds=5)
    assert done["a"].ended == 115
    assert done["a"].restarts == 1


def test_a_stop_during_a_restart_pays_it_again():
    events = [
        NodeEvent(time=at, node=0, up=up)
        for at, up in ((40, False), (50, True), (52, False), (60, True))
    ]
    done, _ = play([job("a", 100)], Fifo(), 1, node_events=events, restart_seconds=5)
    assert done["a"].ended == 60 + 5 + 60


def test_a_phase_without_gpus_runs_while_others_hold_them_all():
    first = job("b", 60, demand=Demand(cpu_milli=1000)).phases[0]
    second = job("b", 40, 8).phases[0]
    phased = SimulatedJob(name="b", arrives=0, phases=(first, second))
    done, _ = play([job("a", 50, 8), phased], Fifo(), 8)
    assert (done["b"].ended, done["b"].gpu_seconds) == (100, 320)


def test_a_job_that_was_stopped_needs_no_second_start_to_be_counted_as_waiting():
    done, _ = play([job("a", 10), job("b", 10)], Fifo(), 1)
    assert done["b"].wait_seconds == 10


def test_what_was_spent_adds_up_to_the_bill():
    nodes = cluster(2, 1, micros_per_gpu_hour=3_600_000)
    _, outcome = play([job("a", 100, 2), job("b", 50)], Fifo(), nodes=nodes)
    split = outcome.ledger.split()
    assert money(outcome.ledger.billed) == pytest.approx(3 * 100 * 3.6 / 3600)
    assert money(split[Spent.USEFUL]) == pytest.approx(250 * 3.6 / 3600)
    assert money(split[Spent.IDLE]) == pytest.approx(50 * 3.6 / 3600)


def test_a_restart_is_waste_and_told_as_such():
    nodes = cluster(1, micros_per_gpu_hour=3_600_000)
    events = [NodeEvent(time=40, node=0, up=False), NodeEvent(time=50, node=0, up=True)]
    _, outcome = play([job("a", 100)], Fifo(), nodes=nodes, node_events=events, restart_seconds=5)
    assert money(outcome.ledger.split()[Spent.RESTART]) == pytest.approx(5 * 3.6 / 3600)


def test_a_node_that_is_gone_is_not_billed():
    nodes = cluster(1, 1, micros_per_gpu_hour=3_600_000)
    events = [NodeEvent(time=10, node=1, up=False)]
    _, outcome = play([job("a", 100)], Fifo(), nodes=nodes, node_events=events)
    assert money(outcome.ledger.billed) == pytest.approx(110 * 3.6 / 3600)


def test_costs_are_told_by_queue():
    nodes = cluster(2, micros_per_gpu_hour=3_600_000)
    jobs = [job("a", 100, queue="red"), job("b", 50, queue="blue")]
    _, outcome = play(jobs, Fifo(), nodes=nodes)
    red, blue = (outcome.ledger.by("queue")[name] for name in ("red", "blue"))
    assert red == 2 * blue


def test_a_simulation_can_be_left_in_the_middle():
    _, outcome = play([job("a", 100), job("b", 100, arrives=20)], Fifo(), 1, until=50)
    assert outcome.unfinished == 2
    assert outcome.seconds == 20


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr("cnai.schedule.simulation.engine.PROGRESS_EVERY", 10)
    told = []
    jobs = [job(str(n), 1, arrives=2 * n) for n in range(40)]
    play(jobs, Fifo(), 1, on_progress=lambda done, every: told.append((done, every)))
    assert told[-1][1] == 40
    assert told == sorted(told)


def phased(name, *phases):
    return SimulatedJob(name=name, arrives=0, phases=tuple(one.phases[0] for one in phases))


CPU = Demand(cpu_milli=1000)


def test_phases_that_need_the_same_follow_each_other_without_a_queue():
    two = phased("a", job("a", 50, 8), job("a", 50, 8))
    done, _ = play([two, job("b", 10, 8, arrives=1)], Fifo(), 8)
    assert done["a"].ended == 100


def test_gpus_are_held_through_a_phase_that_is_shorter_than_a_restart():
    parts = (job("a", 50, 8), job("a", 20, demand=CPU, declared_seconds=20), job("a", 50, 8))
    done, _ = play([phased("a", *parts), job("b", 10, 8, arrives=1)], Fifo(), 8)
    assert (done["a"].ended, done["a"].gpu_seconds) == (120, 8 * 120)


def test_gpus_are_released_for_a_longer_phase_and_the_restart_is_paid():
    parts = (job("a", 50, 8), job("a", 40, demand=CPU, declared_seconds=40), job("a", 50, 8))
    done, _ = play([phased("a", *parts), job("b", 10, 8, arrives=1)], Fifo(), 8)
    assert done["b"].started == 50
    assert done["a"].ended == 50 + 40 + 30 + 50


def test_gpus_are_released_for_a_phase_of_which_nobody_knows_the_length():
    parts = (job("a", 50, 8), job("a", 20, demand=CPU), job("a", 50, 8))
    done, _ = play([phased("a", *parts)], Fifo(), 8)
    assert done["a"].gpu_seconds == 8 * (50 + 30 + 50)
