import numpy as np
import pytest

from cnai.compress.guard.speed import FEWEST_PAIRS, measure_speed
from monitor_case import FakeClock


def timed(before, after, **options):
    clock = FakeClock()

    def run(seconds):
        return lambda: clock.sleep(seconds() if callable(seconds) else seconds)

    return measure_speed(run(before), run(after), clock, rows=1, **options)


def test_a_model_of_half_the_time_is_twice_as_fast():
    found = timed(0.2, 0.1)
    assert found.ratio == pytest.approx(2)
    assert found.faster
    assert not found.slower


def test_a_model_of_more_time_is_slower():
    found = timed(0.1, 0.2)
    assert found.slower
    assert not found.faster


def test_load_that_comes_and_goes_hits_both():
    generator = np.random.default_rng(0)
    load = [1.0]

    def before():
        load[0] = float(generator.uniform(1, 20))
        return 0.02 * load[0]

    assert timed(before, lambda: 0.01 * load[0]).ratio == pytest.approx(2)


def test_noise_proves_nothing():
    generator = np.random.default_rng(1)
    found = timed(lambda: generator.uniform(0.5, 1.5), lambda: generator.uniform(0.5, 1.5))
    assert not found.faster
    assert not found.slower


def test_slow_models_run_a_few_times_and_fast_ones_until_the_time_is_over():
    assert timed(100, 100).pairs == FEWEST_PAIRS
    assert timed(0.01, 0.01, seconds=1).pairs > 40
