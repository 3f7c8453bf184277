"""What the guard is made of: units, divergence, GPTQ, smoothing, the search."""

import dataclasses
import time

import numpy as np
import pytest
import torch

from cnai.compress.decoder.gptq import calibrated, round_columns
from cnai.compress.decoder.search import Option, admitted, ranked
from cnai.compress.decoder.smooth import smoothed, smoothing
from cnai.compress.decoder.trial import Reference, Trial
from cnai.compress.decoder.units import units_of
from cnai.compress.folder.rounding import quantized_rows, restored_rows
from cnai.compress.folder.treatment import Form, Treatment
from cnai.models.huggingface import HuggingFaceWeights, load_decoder
from cnai.models.initialise import parameter_sizes
from models_folder import save_folder
from models_shapes import TINY, tokens

WIDE = dataclasses.replace(TINY, width=64, ffn_width=96)
ROWS = tokens(WIDE, rows=6).numpy()


@pytest.fixture
def folder(tmp_path):
    save_folder(tmp_path / "m", WIDE, stir=True)
    return tmp_path / "m"


@pytest.fixture
def trial(folder):
    return Trial(HuggingFaceWeights(folder), ROWS, short_scales=False)


def plain(unit, form):
    return {name: Treatment(form=form) for name in unit.names}


def options(small=Form.W8A8, safe=Form.W8A16):
    return [
        Option(unit=unit, form=small, small=plain(unit, small), safe=plain(unit, safe))
        for unit in units_of(WIDE)
    ]


def test_every_matrix_of_a_layer_is_in_one_unit():
    names = [name for unit in units_of(WIDE) for name in unit.names]
    assert sorted(names) == sorted(n for n in parameter_sizes(WIDE) if "_proj.weight" in n)


def test_a_model_does_not_diverge_from_itself(folder):
    decoder = load_decoder(folder)
    found = Reference(decoder, ROWS).of(decoder)
    assert (found.kl, found.top1) == (pytest.approx(0, abs=1e-9), 1.0)


def test_running_from_a_later_layer_gives_the_same(trial):
    whole = trial.logits()
    assert torch.allclose(trial.logits(layer=2), whole, atol=1e-6)


def test_a_trial_is_exact_again_after_it_was_undone(trial):
    before = trial.logits()
    for option in options():
        trial.use(option.small)
    assert not torch.equal(trial.logits(), before)
    for option in options():
        trial.undo(option.small)
    assert torch.equal(trial.logits(), before)


def test_units_are_ranked_by_what_they_cost_and_the_model_is_exact_after(trial):
    before = trial.logits()
    order = ranked(trial, options(), time.monotonic() + 600)
    costs = [one.kl for one in order]
    assert costs == sorted(costs)
    assert len(order) == len(units_of(WIDE))
    assert torch.equal(trial.logits(), before)


def test_units_that_no_time_was_left_for_come_last_and_are_not_admitted(trial):
    order = ranked(trial, options(), time.monotonic() - 1)
    assert {one.kl for one in order} == {None}
    assert admitted(trial, order, 1.0) == 0


def test_as_many_units_are_admitted_as_the_limit_allows(trial):
    order = ranked(trial, options(Form.W4A16), time.monotonic() + 600)

    def cost(count):
        for index, option in enumerate(order):
            trial.use(option.small if index < count else option.safe)
        found = trial.reference.divergence(trial.logits()).kl
        for option in order:
            trial.undo(option.small)
        return found

    limit = cost(5)
    count = admitted(trial, order, limit)
    assert 5 <= count < len(order)
    assert cost(count) <= limit
    assert admitted(trial, order, 1e9) == len(order)
    assert admitted(trial, order, 0.0) == 0


def correlated(samples, width, seed=0):
    generator = np.random.default_rng(seed)
    mix = generator.standard_normal((width, width)) ** 3
    return torch.from_numpy((generator.standard_normal((samples, width)) @ mix).astype(np.float32))


def test_gptq_changes_outputs_less_than_rounding_to_nearest():
    x = correlated(400, 64)
    weight = torch.from_numpy(np.random.default_rng(1).standard_normal((48, 64)).astype("f4"))
    treatment = Treatment(form=Form.W4A16, group=32)
    nearest = quantized_rows(weight.numpy(), treatment, short_scales=False)
    better = round_columns(weight, x.T @ x, 32, short_scales=False)
    errors = [
        float((x @ (torch.from_numpy(restored_rows(one, Form.W4A16)) - weight).T).norm())
        for one in (nearest, better)
    ]
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("products", [torch.zeros(64, 64), torch.ones(64, 64)])
def test_gptq_survives_inputs_that_are_dead_or_all_alike(products):
    made = round_columns(torch.randn(4, 64), products, 64, short_scales=True)
    assert np.isfinite(made.scale).all()
    assert (made.scale > 0).all()
    assert np.abs(made.values).max() <= 7


def test_calibration_rounds_every_layer_whose_inputs_a_group_divides(folder):
    made = calibrated(load_decoder(folder), ROWS, short_scales=False)
    assert sorted(made) == sorted(name for unit in units_of(WIDE) for name in unit.names)


def test_calibration_is_the_same_each_time(folder):
    one, two = (calibrated(load_decoder(folder), ROWS, short_scales=False) for _ in range(2))
    assert {name: t.digest() for name, t in one.items()} == {
        name: t.digest() for name, t in two.items()
    }


def test_smoothing_changes_no_output(trial):
    before = trial.logits()
    factors = smoothing(trial, units_of(WIDE))
    for unit in units_of(WIDE):
        chosen = smoothed(unit, plain(unit, Form.KEPT), factors.get(unit.name))
        trial.use(chosen)
    assert torch.allclose(trial.logits(), before, atol=1e-4)
    assert factors
