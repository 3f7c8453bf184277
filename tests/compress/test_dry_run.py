from cnai.compress import Order, Scheme, Wishes, dry_run
from cnai.compress.guard import Mode
from graphs_for_tests import numbers, perceptron, saved
from guard_case import classifier, labelled, written


def test_a_dry_run_counts_and_writes_nothing(tmp_path):
    model = written(classifier(), tmp_path)
    data = labelled(model, 40, tmp_path / "d.npz")
    before = sorted(tmp_path.iterdir())
    plan = dry_run(model, tmp_path / "q.onnx", Wishes(), Order(evaluation=str(data)))
    assert sorted(tmp_path.iterdir()) == before
    assert (plan.calibration, plan.evaluation) == (10, 30)
    assert plan.count(Scheme.INT8) == 3
    assert plan.before_bytes > 3 * plan.after_bytes
    assert plan.modes == (Mode.WEIGHT_ONLY, Mode.STATIC, Mode.DYNAMIC)


def test_without_data_only_weights_would_change(tmp_path):
    source = saved(perceptron(numbers(256, 128)), tmp_path / "m.pb")
    plan = dry_run(source, tmp_path / "q.pb", Wishes(), Order())
    assert (plan.modes, plan.evaluation) == ((Mode.WEIGHT_ONLY,), 0)
