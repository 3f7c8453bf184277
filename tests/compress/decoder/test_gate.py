import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.compress.decoder.gate import measure, passes, refusal

BEFORE = np.array([1.0, 2.0, 3.0, 4.0])
losses = st.lists(st.floats(0.1, 8), min_size=1, max_size=12).map(np.array)


def test_the_loss_is_the_change_of_the_perplexity():
    quality = measure(BEFORE, BEFORE + math.log(1.02), 0.01)
    assert quality.before == pytest.approx(math.exp(2.5))
    assert quality.relative_loss == pytest.approx(0.02)
    assert quality.after / quality.before - 1 == pytest.approx(quality.relative_loss)
    assert (quality.metric, quality.samples) == ("perplexity", 4)


@given(losses)
@settings(deadline=None)
def test_an_unchanged_model_loses_nothing(before):
    quality = measure(before, before, 0.0)
    assert (quality.relative_loss, quality.low, quality.high) == (0, 0, 0)
    assert quality.passed


@given(losses, st.integers(0, 5))
@settings(deadline=None)
def test_the_interval_holds_the_loss_of_the_mean_row(before, seed):
    after = before + np.random.default_rng(seed).normal(0, 0.1, before.size)
    quality = measure(before, after, 0.01)
    changes = np.expm1([(after - before).min(), (after - before).max()])
    assert changes[0] - 1e-9 <= quality.low <= quality.high <= changes[1] + 1e-9


def test_rows_that_all_change_alike_give_a_sure_result():
    quality = measure(BEFORE, BEFORE + 0.01, 0.1)
    assert quality.low == pytest.approx(quality.high)


def test_rows_that_disagree_give_a_wide_interval():
    quality = measure(BEFORE, BEFORE + np.array([-0.1, 0.1, -0.1, 0.1]), 0.1)
    assert quality.low < -0.05
    assert quality.high > 0.05


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator, hits = np.random.default_rng(1), 0
    for _ in range(100):
        change = generator.normal(0.02, 0.05, 60)
        quality = measure(np.full(60, 3.0), 3 + change, 0.1)
        hits += quality.low <= math.expm1(0.02) <= quality.high
    assert 88 <= hits <= 100


def test_measuring_again_gives_the_same_interval():
    after = BEFORE + np.array([0.1, 0.0, 0.2, 0.0])
    assert measure(BEFORE, after, 0.1) == measure(BEFORE, after, 0.1)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_loss_that_is_no_number_never_passes(broken, side):
    bad = np.where(BEFORE == 2, broken, BEFORE)
    pair = (bad, BEFORE) if side == "before" else (BEFORE, bad)
    assert not passes(measure(*pair, 1e9))


def test_a_loss_beyond_the_gate_says_values_place_and_a_way_out():
    error = refusal(measure(BEFORE, BEFORE + math.log(1.05), 0.01), where="runs/a")
    assert "12.18 to 12.79, +5.00%" in error.message
    assert "allowed is 1.00%" in error.message
    assert error.where == "runs/a"
    assert "max_loss" in error.hint


def test_a_loss_that_is_not_sure_asks_for_more_sequences():
    after = BEFORE + np.array([-0.2, 0.3, -0.2, 0.3])
    quality = measure(BEFORE, after, 0.01)
    assert not passes(quality)
    assert "validation_sequences" in refusal(quality, where="m").hint


def test_a_loss_at_the_gate_passes():
    after = BEFORE + 0.1
    exact = measure(BEFORE, after, 1.0).relative_loss
    assert passes(measure(BEFORE, after, exact))


def test_a_gain_too_good_to_be_true_does_not_pass():
    quality = measure(BEFORE, BEFORE - 0.3, 0.01)
    assert not passes(quality)
    assert "that much better" in refusal(quality, where="m").message


def test_losses_of_other_rows_are_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="rows"):
        measure(BEFORE, BEFORE[:2], 0.01)
