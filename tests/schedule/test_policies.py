import pytest

from cnai.core.errors import SpecError
from cnai.schedule.actions import Preempt, Resize, Start
from cnai.schedule.decide import decide
from cnai.schedule.goodput import curve_of
from cnai.schedule.policies import POLICIES, make_policy
from cnai.schedule.policies.adaptive import Adaptive
from schedule_case import add, job, play, view_of

CURVE = curve_of({1: 1.0, 2: 1.9, 4: 3.5, 8: 6.0})


def test_first_come_first_served_lets_nobody_overtake():
    done, _ = play(
        [job("a", 100, 6), job("b", 100, 4, 1), job("c", 10, 2, 2)], make_policy("fifo"), 8
    )
    assert done["c"].started == 100


def test_backfill_starts_what_fits():
    done, _ = play(
        [job("a", 100, 6), job("b", 100, 4, 1), job("c", 10, 2, 2)], make_policy("backfill"), 8
    )
    assert done["c"].started == 2


def test_easy_fills_a_hole_only_where_the_first_in_line_is_not_delayed():
    jobs = [job("a", 100, 6), job("b", 100, 8, 1), job("short", 50, 2, 2), job("long", 500, 2, 3)]
    done, _ = play(jobs, make_policy("easy"), 8, knows_truth=True)
    assert (done["short"].started, done["b"].started) == (2, 100)
    assert done["long"].started == 200


def test_least_attained_service_lets_a_new_job_in_at_once():
    done, _ = play([job("old", 5000, 8), job("new", 10, 8, 1000)], make_policy("las"), 8)
    assert done["new"].started == 1000
    assert done["old"].restarts == 1
    assert done["old"].ended == 5040


def test_shortest_remaining_first_knows_the_truth():
    jobs = [job("long", 1000, 8), job("short", 10, 8, 1), job("middle", 100, 8, 1)]
    done, _ = play(jobs, make_policy("srsf"), 8, knows_truth=True)
    assert done["short"].ended < done["middle"].ended < done["long"].ended


def test_an_unknown_policy_is_told_with_those_there_are():
    with pytest.raises(SpecError) as error:
        make_policy("best")
    assert all(name in error.value.hint for name in POLICIES)


def test_our_policy_learns_which_jobs_will_end_soon():
    short = [job(f"s{n}", 60, 1, n * 70) for n in range(300)]
    jobs = [*short, job("long", 200_000, 1, 0)]
    done, _ = play(jobs, Adaptive(), 1)
    waits = [done[f"s{n}"].wait_seconds for n in range(250, 300)]
    assert max(waits) < 700


def test_a_job_that_waits_too_long_is_served_before_all_others():
    steady = [job(f"s{n}", 3000, 1, n * 1000) for n in range(200)]
    policy = Adaptive(longest_wait_seconds=20_000)
    done, _ = play([*steady, job("gang", 100, 2, 5)], policy, 2)
    assert done["gang"].wait_seconds < 20_000 + 3000 + policy.quantum_seconds


def test_an_elastic_job_grows_into_what_is_free():
    view = view_of(8)
    add(view, "e", 1, curve=CURVE, least=1, most=8)
    (start,) = decide(view, 0.0, Adaptive())
    assert sum(slot.workers for slot in start.slots) == 8


def test_a_new_job_makes_an_elastic_one_smaller_instead_of_stopping_it():
    view = view_of(8)
    policy = Adaptive()
    add(view, "e", 1, curve=CURVE, least=1, most=8)
    view.apply(decide(view, 0.0, policy)[0], 0, 0.0)
    add(view, "new", 4, now=5.0)
    resize, start = decide(view, 5.0, policy)
    assert isinstance(resize, Resize)
    assert resize.reason.code == "makes_room"
    assert isinstance(start, Start)
    assert start.job == "new"


def test_a_job_keeps_its_size_for_the_dwell_time():
    view = view_of(8)
    policy = Adaptive(dwell_seconds=600)
    add(view, "rigid", 6)
    add(view, "e", 1, curve=CURVE, least=1, most=8)
    for action in decide(view, 0.0, policy):
        view.apply(action, view.jobs.place_of(action.job), 0.0)
    view.stop(0, 100.0)
    view.jobs.remove([0])
    assert decide(view, 100.0, policy) == []
    (resize,) = decide(view, 601.0, policy)
    assert isinstance(resize, Resize)


def test_sizes_stay_multiples_of_the_unit():
    view = view_of(8)
    add(view, "e", 2, curve=curve_of({1: 1, 2: 2, 3: 3, 4: 4, 6: 5.5}), least=2, most=8, unit=2)
    (start,) = decide(view, 0.0, Adaptive(least_efficiency=0.0))
    assert sum(slot.workers for slot in start.slots) in {2, 4, 6}


def test_who_is_pushed_out_in_vain_keeps_his_place():
    view = view_of(2, 2)
    policy = make_policy("las")
    for name in ("a", "b"):
        add(view, name, 2)
    for action in decide(view, 0.0, policy):
        view.apply(action, view.jobs.place_of(action.job), 0.0)
    view.jobs.attained[:] = 1000.0
    add(view, "wide", 1, now=1.0)
    actions = decide(view, 1.0, policy)
    assert sum(isinstance(one, Preempt) for one in actions) == 1
