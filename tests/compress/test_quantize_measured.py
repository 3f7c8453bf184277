"""Files with data: what the guard makes of whole models in ONNX Runtime."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from cnai.compress import Order, Wishes, quantize_file
from cnai.compress.guard import Goal, Mode
from cnai.core.errors import AccuracyError, DataError, SpecError
from graphs_for_tests import numbers, perceptron, saved
from guard_case import classifier, labelled, written


@pytest.fixture
def model(tmp_path):
    return written(classifier(), tmp_path)


def order(data, **options):
    return Order(evaluation=str(data), **options)


def kinds(path):
    return {one.op_type for one in onnx.load(str(path)).graph.node}


def test_static_int8_is_made_judged_and_reported(tmp_path, model):
    data = labelled(model, 600, tmp_path / "d.npz")
    wanted = order(data, mode=Mode.STATIC, goal=Goal(max_loss=0.05))
    report = quantize_file(model, tmp_path / "q.onnx", order=wanted)
    assert "QuantizeLinear" in kinds(tmp_path / "q.onnx")
    assert report.quality.metric == "accuracy"
    assert report.quality.samples == 600 - 128
    assert report.mode is Mode.STATIC
    assert report.ratio > 2.5
    session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"))
    assert session.run(None, {"x": numbers(3, 64)})[0].shape == (3, 8)


def test_the_report_holds_every_trial_and_a_picture(tmp_path, model):
    data = labelled(model, 300, tmp_path / "d.npz")
    quantize_file(model, tmp_path / "q.onnx", order=order(data, goal=Goal(max_loss=0.05)))
    written_down = json.loads((tmp_path / "q.onnx.report.json").read_text())
    assert {one["mode"] for one in written_down["trials"]} == {"weight-only", "static", "dynamic"}
    page = (tmp_path / "q.onnx.report.md").read_text()
    assert "## Tried" in page
    assert "Speed and change of the outputs" in page


def test_a_layer_that_a_single_scale_ruins_goes_back_to_weight_only(tmp_path):
    model = written(classifier(ruined=True), tmp_path)
    data = labelled(model, 600, tmp_path / "d.npz")
    wanted = order(data, mode=Mode.STATIC, goal=Goal(max_loss=0.05))
    report = quantize_file(model, tmp_path / "q.onnx", order=wanted)
    layers = [one for one in report.groups if not one.group.startswith("all ")]
    guilty = max(layers, key=lambda one: one.error)
    assert "middle" in guilty.group
    assert guilty.back
    assert report.quality.relative_loss <= 0.05
    first = next(one for one in report.trials if one.mode is Mode.STATIC)
    assert first.score.quality.relative_loss > 0.05


def test_without_labels_the_outputs_are_compared(tmp_path, model):
    np.save(tmp_path / "d.npy", numbers(40, 64))
    report = quantize_file(model, tmp_path / "q.onnx", order=order(tmp_path / "d.npy"))
    assert report.quality.metric == "expected accuracy"
    assert report.agreement.inputs == "data"


def test_a_few_samples_are_enough_to_run_but_not_to_tell(tmp_path, model):
    data = labelled(model, 5, tmp_path / "d.npz")
    report = quantize_file(model, tmp_path / "q.onnx", order=order(data))
    assert any("not resolvable with 4 samples" in one for one in report.notes)


def test_a_single_sample_is_enough_to_run(tmp_path, model):
    data = labelled(model, 1, tmp_path / "d.npz")
    report = quantize_file(model, tmp_path / "q.onnx", order=order(data))
    assert any("both calibrates and judges" in one for one in report.notes)


def test_a_missed_goal_leaves_the_best_beside_and_the_target_free(tmp_path, model):
    data = labelled(model, 60, tmp_path / "d.npz")
    wanted = order(data, goal=Goal(max_loss=0.001, strict=True))
    (tmp_path / "q.missed.onnx").write_text("mine")
    with pytest.raises(AccuracyError, match=r"q\.missed-2\.onnx") as error:
        quantize_file(model, tmp_path / "q.onnx", order=wanted)
    assert error.value.exit_code == 6
    assert not (tmp_path / "q.onnx").exists()
    assert (tmp_path / "q.missed.onnx").read_text() == "mine"
    onnxruntime.InferenceSession(str(tmp_path / "q.missed-2.onnx"))
    assert (tmp_path / "q.missed-2.onnx.report.md").exists()


def test_a_budget_of_nothing_still_writes_weight_only(tmp_path, model):
    data = labelled(model, 60, tmp_path / "d.npz")
    report = quantize_file(model, tmp_path / "q.onnx", order=order(data, budget_seconds=0.0))
    assert (report.mode, len(report.trials)) == (Mode.WEIGHT_ONLY, 1)
    assert report.speed is None


def test_calibration_and_evaluation_may_be_two_sets(tmp_path, model):
    judging = labelled(model, 50, tmp_path / "d.npz")
    np.save(tmp_path / "c.npy", numbers(20, 64, seed=9))
    report = quantize_file(
        model, tmp_path / "q.onnx", order=order(judging, calibration=str(tmp_path / "c.npy"))
    )
    assert report.quality.samples == 50


def test_arithmetic_without_data_is_refused_at_once(tmp_path, model):
    with pytest.raises(SpecError, match="needs data"):
        quantize_file(model, tmp_path / "q.onnx", order=Order(mode=Mode.STATIC))


def test_arithmetic_in_tensorflow_graphs_is_refused(tmp_path):
    source = saved(perceptron(numbers(256, 128)), tmp_path / "m.pb")
    with pytest.raises(SpecError, match="not written for graphdef"):
        quantize_file(source, tmp_path / "q.pb", order=Order(mode=Mode.DYNAMIC, evaluation="d"))


def test_labels_of_another_length_leave_nothing(tmp_path, model):
    data = labelled(model, 20, tmp_path / "d.npz", labels=np.zeros(19))
    with pytest.raises(DataError, match="19 labels for 20 samples"):
        quantize_file(model, tmp_path / "q.onnx", order=order(data))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["d.npz", "m.onnx"]


def test_an_output_that_is_not_there_is_refused_with_those_that_are(tmp_path, model):
    data = labelled(model, 20, tmp_path / "d.npz")
    with pytest.raises(SpecError, match="no `z`; it has `y`"):
        quantize_file(model, tmp_path / "q.onnx", order=order(data, outputs=("z",)))


def test_ignored_weights_stay_floats_in_arithmetic_too(tmp_path, model):
    data = labelled(model, 200, tmp_path / "d.npz")
    wanted = order(data, mode=Mode.STATIC, goal=Goal(max_loss=0.1))
    report = quantize_file(model, tmp_path / "q.onnx", Wishes(ignore="middle_w"), order=wanted)
    kept = next(one for one in report.weights if "middle_w" in one.name)
    assert kept.scheme == "kept"
