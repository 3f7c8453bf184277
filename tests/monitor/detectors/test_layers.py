"""What detectors find in the records of the layers, and what they leave alone."""

import pytest

from cnai.monitor import DETECTORS
from layers_case import layers, ready
from monitor_case import started, step

FIRST, SECOND = "layers.0.w.weight", "layers.1.w.weight"


def run(name, events):
    detector = DETECTORS[name]()
    return [found for event in events if (found := detector.update(event)) is not None]


def records(count, start=1, **changes):
    return [layers(start + index, **changes) for index in range(count)]


# vanishing


def test_a_gradient_that_vanishes_is_found_with_its_layer():
    (found,) = run("vanishing", records(12, gradient={FIRST: 1e-6}))
    assert (found.step, found.layer) == (10, FIRST)


def test_a_gradient_that_is_small_everywhere_has_not_vanished():
    assert run("vanishing", records(30, gradient=1e-6)) == []


def test_an_embedding_with_a_small_gradient_is_healthy():
    assert run("vanishing", records(30, gradient={"embedding.weight": 1e-9})) == []


def test_a_frozen_first_layer_has_not_vanished():
    assert run("vanishing", records(30, gradient={FIRST: 0.0})) == []


def test_a_gradient_that_vanishes_for_three_steps_is_healthy():
    events = [*records(9), *records(3, start=10, gradient={FIRST: 1e-6}), *records(9, start=13)]
    assert run("vanishing", events) == []


# rate_high, rate_low


def test_updates_as_large_as_the_weights_are_found():
    (found,) = run("rate_high", records(5, update={SECOND: 0.5}))
    assert (found.step, found.layer) == (3, SECOND)


def test_a_bias_that_begins_at_zero_may_change_by_much():
    bias = "layers.1.w.bias"
    assert run("rate_high", records(30, update={bias: 5.0}, weight={bias: 0.0})) == []


def test_two_large_updates_in_a_warm_up_are_healthy():
    assert run("rate_high", [*records(2, update=0.5), *records(30, start=3)]) == []


def steps_with(count, **changes):
    rates = changes.pop("rates", [1e-3] * count)
    for index in range(count):
        yield step(index + 1, learning_rate=rates[index])
        yield layers(index + 1, **changes)


def test_updates_that_are_nothing_are_found():
    (found,) = run("rate_low", steps_with(30, update=1e-8))
    assert found.step == 16


def test_a_long_warm_up_is_healthy():
    rising = [1e-9 * 1.2**index for index in range(60)]
    assert run("rate_low", steps_with(60, update=1e-8, rates=rising)) == []


def test_steps_without_a_measured_update_do_not_count():
    assert run("rate_low", steps_with(60, update=float("nan"))) == []


# frozen


@pytest.mark.parametrize("what", ["update", "gradient"])
def test_a_matrix_that_is_not_trained_is_found(what):
    (found,) = run("frozen", records(20, **{what: {SECOND: 0.0}}))
    assert (found.step, found.layer) == (15, SECOND)


def test_a_matrix_that_is_frozen_on_purpose_is_healthy():
    events = [ready("layers.*.w.weight"), *records(40, update={SECOND: 0.0})]
    assert run("frozen", events) == []


def test_an_expert_to_which_no_token_goes_for_a_while_is_healthy():
    import numpy as np

    from cnai.core.vectors import Columns, LayersMeasured

    names = ("layers.0.experts.3.up.weight", "head.weight")
    columns = Columns((("gradient", names), ("update", names)), tuple((one, 9) for one in names))
    values = np.array([0.0, 0.1, 0.0, 0.1], dtype=np.float32)
    events = [
        LayersMeasured(time_unix=0.0, attempt=0, step=at, columns=columns, values=values)
        for at in range(1, 100)
    ]
    assert run("frozen", events) == []


def test_a_model_whose_gradient_is_zero_everywhere_is_not_called_frozen():
    assert run("frozen", records(40, gradient=0.0)) == []


# decay_blowup


def test_weights_that_shrink_fast_are_found():
    events = [layers(at, weight=0.97**at) for at in range(1, 20)]
    assert run("decay_blowup", events)[0].step == 9


def test_weights_that_shrink_slowly_are_healthy():
    assert run("decay_blowup", [layers(at, weight=0.999**at) for at in range(1, 200)]) == []


# dead units, saturation, entropy, logits, rows


@pytest.mark.parametrize(("name", "group"), [("dead_units", "dead"), ("saturation", "saturated")])
def test_units_that_carry_nothing_are_found(name, group):
    nothing = records(4)
    events = [one for at in range(1, 40, 10) for one in (layers(at, **{group: 0.8}), *nothing)]
    (found,) = run(name, events)
    assert (found.step, found.layer) == (21, "layers.0.act")


@pytest.mark.parametrize(("name", "group"), [("dead_units", "dead"), ("saturation", "saturated")])
def test_half_of_the_units_may_rest(name, group):
    assert run(name, records(30, **{group: 0.49})) == []


def test_attention_to_one_token_is_found():
    (found,) = run("entropy_collapse", records(5, entropy={"layers.1": 0.01, "layers.0": 0.7}))
    assert (found.step, found.layer) == (3, "layers.1")


def test_sharp_attention_now_and_then_is_healthy():
    events = [layers(at, entropy=0.05 if at % 3 == 0 else 0.5) for at in range(1, 60)]
    assert run("entropy_collapse", events) == []


def test_logits_that_drift_are_found():
    (found,) = run("logit_drift", [layers(at, log_z=4.0 + at) for at in range(1, 20)])
    assert found.repairs[0].spec_patch == {"train.z_loss": 1e-4}


@pytest.mark.parametrize("values", [[30.0] * 40, [9.0 - at / 10 for at in range(40)]])
def test_logits_that_stay_or_fall_are_healthy(values):
    events = [layers(at, log_z=value) for at, value in enumerate(values, start=1)]
    assert run("logit_drift", events) == []


def test_rows_that_never_come_up_are_found():
    assert run("unused_rows", [layers(5, rows_used=0.3, ids_a_row=25.0)])[0].layer == "embedding"


def test_rare_tokens_are_healthy():
    assert run("unused_rows", [layers(5, rows_used=0.3, ids_a_row=5.0)]) == []
    assert run("unused_rows", [layers(500, rows_used=0.8, ids_a_row=500.0)]) == []


# plateau


def curve(values, ratios, asked=1000):
    yield started()
    from dataclasses import replace

    yield replace(started(), steps=asked)
    for at, (value, ratio) in enumerate(zip(values, ratios, strict=True), start=1):
        yield step(at, loss=value)
        yield layers(at, update=ratio)


def test_a_loss_that_stops_with_the_updates_is_found():
    values = [4.0 - min(at, 40) / 40 for at in range(120)]
    ratios = [1e-3 if at < 40 else 1e-6 for at in range(120)]
    (found,) = run("plateau", curve(values, ratios))
    assert found.step < 100


def test_a_loss_that_does_not_move_for_long_is_found():
    assert run("plateau", curve([4.0, *[3.0] * 250], [1e-3] * 251))


def test_a_late_plateau_is_healthy():
    assert run("plateau", curve([4.0, *[3.0] * 250], [1e-3] * 251, asked=300)) == []


def test_a_run_that_has_learnt_may_rest():
    assert run("plateau", curve([4.0, *[1.0] * 250], [1e-3] * 251)) == []


@pytest.mark.parametrize("name", DETECTORS)
def test_a_healthy_record_is_nothing_to_any_detector(name):
    assert run(name, [started(), *steps_with(60)]) == []
