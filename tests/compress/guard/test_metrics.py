import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.compress.guard.metrics import edits, metric_of
from cnai.core.errors import DataError, SpecError


def measured(name, pairs, **options):
    metric = metric_of(name, **options)
    values = [metric.of({"y": np.asarray(scores)}, label) for scores, label in pairs]
    return metric.total(np.array(values))


def test_accuracy_counts_the_largest_scores():
    assert measured("accuracy", [([[0.1, 0.9]], 1), ([[0.1, 0.9]], 0)]) == 0.5


def test_a_single_score_decides_at_the_middle():
    assert measured("accuracy", [([[0.7]], 1), ([[0.2]], 1)]) == 0.5


def test_a_class_that_comes_out_is_taken_as_it_is():
    assert measured("accuracy", [([3], 3)]) == 1


def test_a_row_of_ones_and_zeros_is_a_label_too():
    assert measured("accuracy", [([[0.1, 0.9, 0]], [0, 1, 0])]) == 1


def test_f1_is_the_mean_over_classes():
    pairs = [([[1, 0]], 0), ([[1, 0]], 1), ([[0, 1]], 1)]
    assert measured("f1", pairs) == pytest.approx(2 / 3)


def test_texts_are_read_without_repeats_and_blanks():
    scores = np.eye(3)[[1, 1, 0, 1, 2]][None]
    assert measured("cer", [(scores, "aab")], alphabet=["", "a", "b"]) == 1
    assert measured("cer", [(scores, "aabb")], alphabet=["", "a", "b"]) == 0.75


def test_vectors_are_compared_with_the_label():
    assert measured("cosine", [([[1.0, 1.0]], [1.0, 0.0])]) == pytest.approx(np.sqrt(0.5))


def test_a_function_of_ones_own_gets_outputs_by_name(tmp_path):
    (tmp_path / "m.py").write_text(
        "def first(outputs, label):\n    return outputs['y'][0] * label\n"
    )
    assert measured(f"{tmp_path}/m.py:first", [([2.0], 3), ([1.0], 0)]) == 3


def test_a_function_that_fails_is_told_with_its_reason(tmp_path):
    (tmp_path / "m.py").write_text("def first(outputs, label):\n    return 1 / 0\n")
    with pytest.raises(DataError, match="ZeroDivisionError"):
        measured(f"{tmp_path}/m.py:first", [([2.0], 3)])


@pytest.mark.parametrize(
    ("name", "scores", "label"),
    [("accuracy", [[1, 2]], "cat"), ("accuracy", [[1, 2], [1, 2]], 1), ("cosine", [[1.0]], [1, 2])],
)
def test_labels_that_do_not_fit_are_refused(name, scores, label):
    with pytest.raises(DataError) as error:
        measured(name, [(scores, label)])
    assert error.value.hint


@pytest.mark.parametrize("name", ["accurcy", "cer", "json:nothing"])
def test_a_metric_that_cannot_be_had_is_refused(name):
    with pytest.raises(SpecError):
        metric_of(name)


@given(st.text("ab", max_size=8), st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_edits_are_a_distance(one, two, three):
    assert edits(one, two) == edits(two, one)
    assert (edits(one, two) == 0) == (one == two)
    assert edits(one, three) <= edits(one, two) + edits(two, three)
