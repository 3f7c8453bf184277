import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.schedule.elastic import Candidate, sizes_of, spread
from cnai.schedule.goodput import StepModel, curve_of
from cnai.schedule.jobs import JobRow
from cnai.schedule.predict import History
from schedule_case import GPU

MODEL = StepModel(
    compute_seconds=0.01, row_seconds=0.01, sync_seconds=0.05, noise_scale=100, base_batch=32
)


def candidate(place, sizes, speeds, weight=1.0):
    return Candidate(place=place, sizes=sizes, speeds=speeds, gpu_milli=1000, weight=weight)


def test_sizes_that_are_not_faster_are_of_no_use():
    assert curve_of({1: 1.0, 2: 0.9, 4: 2.0, 8: 0.0}).sizes == (1, 4)


def test_a_speed_between_known_sizes_lies_on_a_line():
    curve = curve_of({1: 1.0, 4: 2.5})
    assert [curve.speed(n) for n in (1, 2, 4, 8)] == pytest.approx([1.0, 1.5, 2.5, 2.5])


def test_one_worker_has_nobody_to_agree_with():
    assert MODEL.step_seconds(1, 32) == pytest.approx(0.33)
    assert MODEL.step_seconds(2, 32) == pytest.approx(0.01 + 0.16 + 0.05)


def test_a_larger_batch_teaches_less_a_sequence():
    assert MODEL.efficiency(32) == 1.0
    assert MODEL.efficiency(232) == pytest.approx(132 / 332)


def test_more_noise_in_the_gradient_makes_more_workers_worth_it():
    def gain(noise):
        model = StepModel(compute_seconds=0.01, row_seconds=0.01, noise_scale=noise, base_batch=32)
        curve = model.curve((1, 8), (32, 128, 512))
        return curve.speed(8) / curve.speed(1)

    assert gain(1000) > gain(10)


def test_the_least_size_comes_before_any_growth():
    grown = candidate(0, (1, 8), (1.0, 100.0))
    assert spread([grown, candidate(1, (1, 2), (1.0, 1.1))], 8000) == {0: 1, 1: 2}


def test_gpus_go_where_they_help_most():
    flat, steep = candidate(0, (1, 2, 4), (1, 1.1, 1.2)), candidate(1, (1, 2, 4), (1, 2, 4))
    assert spread([flat, steep], 5000) == {0: 1, 1: 4}


def test_who_does_not_fit_is_left_out_and_others_are_not():
    assert spread([candidate(0, (4,), (1,)), candidate(1, (2,), (1,))], 3000) == {1: 2}


@given(
    st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=4, unique=True), max_size=8),
    st.integers(0, 64_000),
)
def test_a_spread_never_gives_more_than_there_is(sizes, free):
    jobs = [
        candidate(place, tuple(sorted(one)), tuple(float(n) ** 0.6 for n in sorted(one)))
        for place, one in enumerate(sizes)
    ]
    found = spread(jobs, free)
    assert sum(found.values()) * 1000 <= free
    assert all(size in jobs[place].sizes for place, size in found.items())


def test_sizes_that_waste_gpus_are_left_out():
    row = JobRow(name="a", demand=GPU, least=1, most=8, curve=curve_of({1: 1, 2: 1.9, 8: 2.4}))
    assert sizes_of(row) == (1, 2, 8)
    assert sizes_of(row, 0.5) == (1, 2)


def test_a_job_without_a_curve_has_one_size():
    assert sizes_of(JobRow(name="a", demand=GPU, workers=4)) == (4,)


def history(*services):
    found = History()
    for service in services:
        found.add(service)
    return found


def test_what_has_lasted_is_expected_to_last():
    found = history(*[60.0] * 90, *[100_000.0] * 10)
    left = found.remaining()
    assert left[0] == pytest.approx(10_054, rel=0.01)
    assert left[np.searchsorted(found.bounds, 5000)] > 50_000


def test_the_index_of_a_new_job_is_high_where_most_end_soon():
    found = history(*[100.0] * 95, *[1e6] * 5)
    index = found.index()
    old = int(np.searchsorted(found.bounds, 10_000))
    assert index[0] > 10 * index[old]


def test_the_index_of_jobs_that_all_take_as_long_rises():
    found = history(*[50_000.0] * 100)
    index = found.index()
    middle = int(np.searchsorted(found.bounds, 20_000))
    assert index[middle] > index[0]


@given(st.lists(st.floats(1, 1e8), min_size=1, max_size=50))
def test_index_and_rest_are_positive_numbers(services):
    found = history(*services)
    for column in (found.index(), found.remaining()):
        assert np.isfinite(column).all()
        assert (column > 0).all()
