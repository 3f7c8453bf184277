import numpy as np
import pytest

from cnai.compress.guard.judge import Goal, Judge, quality_of
from cnai.compress.guard.metrics import Metric, metric_of
from cnai.compress.guard.samples import Sample
from cnai.compress.runners import InputSpec
from cnai.core.errors import DataError
from graphs_for_tests import numbers
from guard_case import FakeRunner


def softmax(x):
    whole = np.exp(x - x.max(axis=-1, keepdims=True))
    return (whole / whole.sum(axis=-1, keepdims=True)).astype(np.float32)


def samples(count, *, labels=None, spread=4.0):
    rows = spread * numbers(count, 4)
    labels = softmax(rows).argmax(-1) if labels is None else labels
    return [
        Sample(feeds={"x": row[None]}, label=None if labels is False else label)
        for row, label in zip(rows, np.broadcast_to(labels, count), strict=True)
    ]


def judged(after, some, *, before=softmax, metric="accuracy", **goal):
    chosen = metric if isinstance(metric, Metric) else metric_of(metric)
    judge = Judge(FakeRunner(before), some, metric=chosen, goal=Goal(**goal))
    return judge.judge(FakeRunner(after))


def noisy(share):
    """Return a model that answers something else for a share of its inputs."""

    def run(x):
        wrong = np.abs(x[:, 0] * 1000 % 1) < share
        return softmax(np.where(wrong[:, None], x[:, ::-1], x))

    return run


def test_the_same_model_passes_with_an_interval_around_zero():
    found = judged(softmax, samples(2000))
    assert found.passed
    assert found.quality.relative_loss == 0
    assert 0 < found.quality.high < 0.01
    assert found.resolvable


def test_a_model_that_lost_accuracy_is_refused_with_its_loss():
    found = judged(noisy(0.2), samples(500))
    assert not found.passed
    assert "accuracy lost" in found.reason
    assert found.quality.low <= found.quality.relative_loss <= found.quality.high


def test_five_samples_show_nothing():
    found = judged(softmax, samples(5))
    assert found.passed
    assert not found.resolvable
    assert found.quality.high > 0.4


def test_with_five_samples_the_outputs_must_be_close():
    def softer(x):
        return softmax(x / 2)

    found = judged(softer, samples(5, spread=3.0))
    assert found.quality.relative_loss == 0
    assert "5 samples cannot show" in found.reason


def test_a_metric_that_rises_while_the_model_breaks_is_refused():
    some = samples(400, labels=0)

    def broken(x):
        return softmax(np.tile([9.0, 0, 0, 0], (len(x), 1)))

    found = judged(broken, some)
    assert found.quality.relative_loss < 0
    assert not found.passed
    assert "its outputs are others" in found.reason


def test_a_metric_that_does_not_move_while_the_model_breaks_is_refused():
    deaf = Metric(name="deaf", of=lambda outputs, label: (1.0,), total=lambda v: v[:, 0].mean())
    found = judged(lambda x: softmax(-x), samples(400), metric=deaf)
    assert (found.quality.relative_loss, found.passed) == (0, False)


def test_without_labels_the_source_judges_the_new_choices():
    found = judged(noisy(0.3), samples(500, labels=False))
    assert found.quality.metric == "expected accuracy"
    assert found.quality.relative_loss > 0.01
    assert not found.passed


def test_without_labels_a_change_between_equals_costs_little():
    def twin(x):
        return softmax(np.concatenate([x[:, :2], x[:, :2] + np.float32(1e-4)], axis=1))

    def other(x):
        return softmax(np.concatenate([x[:, :2], x[:, :2] - np.float32(1e-4)], axis=1))

    found = judged(other, samples(300, labels=False), before=twin)
    assert found.agreement.top1 < 0.5
    assert found.passed


def test_decisions_are_compared_where_one_probability_comes_out():
    def half(x):
        return 1 / (1 + np.exp(-x[:, :1]))

    found = judged(lambda x: 1 - half(x), samples(100, labels=False), before=half)
    assert (found.quality.metric, found.quality.after) == ("same decisions", 0)


def test_other_outputs_are_compared_by_their_direction():
    found = judged(lambda x: x + 0.001, samples(100, labels=False), before=lambda x: x)
    assert found.quality.metric == "cosine of outputs"
    assert found.passed


def test_a_large_offset_does_not_hide_a_model_that_says_always_the_same():
    found = judged(
        lambda x: np.full_like(x, 1000), samples(100, labels=False), before=lambda x: x + 1000
    )
    assert not found.passed


@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_numbers_that_are_none_never_pass(worst):
    found = judged(lambda x: softmax(x) * worst, samples(100))
    assert "infinite or none" in found.reason


def test_another_shape_never_passes():
    assert not judged(lambda x: softmax(x)[:, :3], samples(100, labels=False)).passed


def test_strict_wants_the_whole_interval_within():
    assert judged(softmax, samples(50)).passed
    found = judged(softmax, samples(50), strict=True)
    assert not found.passed
    assert "interval" in found.reason


def test_labels_of_other_samples_are_noticed():
    with pytest.raises(DataError, match="source itself reaches accuracy 0"):
        judged(softmax, samples(20, labels=3), before=lambda x: softmax(x * 0 + [9, 0, 0, 0]))


def test_a_model_of_fixed_rows_is_asked_row_by_row():
    single = (InputSpec(name="x", shape=(1, 4), dtype="float32"),)
    judge = Judge(
        FakeRunner(softmax, inputs=single),
        samples(20),
        metric=metric_of("accuracy"),
        goal=Goal(),
    )
    assert judge.judge(FakeRunner(softmax, inputs=single)).passed


def test_outputs_that_count_no_rows_are_asked_row_by_row():
    found = judged(
        lambda x: x.sum(axis=0), samples(20, labels=False), before=lambda x: x.sum(axis=0)
    )
    assert found.passed
    assert found.agreement.samples == 20


def test_pairs_cancel_out_what_samples_differ_in():
    before = np.random.default_rng(0).uniform(0, 1, (200, 1))
    found = quality_of("m", before, before * 0.99, lambda v: float(v.mean()), 0.01)
    assert found.relative_loss == pytest.approx(0.01)
    assert found.high - found.low < 1e-9
