from pathlib import Path

import numpy as np
import pytest

from cnai.compress.formats.graphdef import GraphDefFile
from cnai.compress.weight_only import Scheme, Wishes, shrink
from cnai.core.errors import DataError
from graphs_for_tests import numbers, perceptron, saved


def shrunk(weight: np.ndarray, tmp_path: Path, **wishes):
    file = GraphDefFile(saved(perceptron(weight), tmp_path / "m.pb"))
    return {one.name: one for one in shrink(file, Wishes(**wishes))}


def test_a_matrix_becomes_int8_and_a_vector_stays(tmp_path: Path):
    found = shrunk(numbers(64, 32), tmp_path)
    assert found["weight"].scheme is Scheme.INT8
    assert (found["bias"].scheme, found["bias"].reason) == (Scheme.KEPT, "is a vector")


def test_what_it_takes_afterwards_is_told(tmp_path: Path):
    found = shrunk(numbers(64, 32), tmp_path)["weight"]
    assert (found.before_bytes, found.after_bytes) == (64 * 32 * 4, 64 * 32 + 32 * 4)


def test_a_matrix_that_int8_would_hurt_becomes_float16(tmp_path: Path):
    weight = numbers(64, 32)
    weight[0] *= 1000
    found = shrunk(weight, tmp_path)["weight"]
    assert found.scheme is Scheme.FLOAT16
    assert "INT8 would change it" in found.reason
    assert found.relative_error < 0.001


def test_a_matrix_that_neither_can_hold_stays(tmp_path: Path):
    weight = numbers(64, 32)
    weight[0] = 1e6
    found = shrunk(weight, tmp_path)["weight"]
    assert found.scheme is Scheme.KEPT
    assert "float16 cannot hold" in found.reason


def test_a_fixed_basis_stays_floats(tmp_path: Path):
    angles = 2 * np.pi * np.outer(np.arange(64), np.arange(33)) / 64
    found = shrunk(np.cos(angles).astype(np.float32), tmp_path)["weight"]
    assert (found.scheme, found.reason) == (Scheme.FLOAT16, "is the fixed basis of a transform")


def test_small_matrices_are_not_worth_their_nodes(tmp_path: Path):
    assert "too small" in shrunk(numbers(8, 8), tmp_path)["weight"].reason


def test_what_is_to_be_ignored_is_ignored(tmp_path: Path):
    assert "ignored" in shrunk(numbers(64, 32), tmp_path, ignore="^wei")["weight"].reason


def test_floats_of_half_the_size_can_be_asked_for(tmp_path: Path):
    found = shrunk(numbers(64, 32), tmp_path, scheme=Scheme.FLOAT16)["weight"]
    assert found.scheme is Scheme.FLOAT16


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused_by_name(tmp_path: Path, broken):
    weight = numbers(64, 32)
    weight[3, 4] = broken
    with pytest.raises(DataError, match="1 of 2048 weights of `weight`"):
        shrunk(weight, tmp_path)


def test_dead_channels_do_no_harm(tmp_path: Path):
    weight = numbers(64, 32)
    weight[:, 5] = 0
    found = shrunk(weight, tmp_path)["weight"]
    assert found.scheme is Scheme.INT8
    assert np.isfinite(found.relative_error)


def test_progress_ends_at_the_whole(tmp_path: Path):
    file = GraphDefFile(saved(perceptron(), tmp_path / "m.pb"))
    seen = []
    shrink(file, Wishes(), lambda done, total: seen.append((done, total)))
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] > 0
