from pathlib import Path

import numpy as np
import pytest

from cnai.compress import quantize_file
from cnai.compress.compare import PAIRS, compare
from cnai.core.errors import DataError, SpecError
from graphs_for_tests import numbers, onnx_perceptron, saved
from saved_model_for_tests import old_style


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    source = saved(onnx_perceptron(), tmp_path / "m.onnx")
    quantize_file(source, tmp_path / "q.onnx")
    return source, tmp_path / "q.onnx"


def test_a_model_and_its_quantized_form_agree(pair):
    found = compare(*pair)
    assert found.agreement.cosine > 0.999
    assert found.agreement.inputs == "made up"
    assert found.first_bytes > 2 * found.second_bytes
    assert found.low <= found.speed <= found.high
    assert found.pairs == PAIRS


def test_a_model_agrees_with_itself_fully(pair):
    assert compare(pair[0], pair[0]).agreement.relative_error == 0


def test_real_inputs_are_taken_from_a_file(pair, tmp_path: Path):
    np.savez(tmp_path / "x.npz", x=numbers(7, 64))
    found = compare(*pair, tmp_path / "x.npz")
    assert (found.agreement.inputs, found.agreement.samples) == ("data", 7)


def test_an_input_that_is_missing_is_told_by_name(pair, tmp_path: Path):
    np.savez(tmp_path / "x.npz", other=numbers(7, 64))
    with pytest.raises(DataError, match="no array for the input `x`"):
        compare(*pair, tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no arrays"])
def test_a_file_of_no_arrays_is_told(pair, tmp_path: Path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="as arrays"):
        compare(*pair, tmp_path / "x.npz")


def test_models_with_other_inputs_are_refused(pair, tmp_path: Path):
    other = onnx_perceptron()
    other.graph.input[0].name = other.graph.node[0].input[0] = "z"
    with pytest.raises(SpecError, match="other inputs"):
        compare(pair[0], saved(other, tmp_path / "o.onnx"))


def test_models_with_other_outputs_are_refused(pair, tmp_path: Path):
    other = onnx_perceptron()
    del other.graph.initializer[:]
    other.graph.initializer.extend(perceptron_tensors(64, 16))
    with pytest.raises(SpecError, match="cannot be compared"):
        compare(pair[0], saved(other, tmp_path / "o.onnx"))


def perceptron_tensors(*shape: int):
    from onnx import numpy_helper

    yield numpy_helper.from_array(numbers(*shape), "weight")
    yield numpy_helper.from_array(numbers(shape[1]), "bias")


def test_a_format_that_no_runtime_runs_is_refused(tmp_path: Path):
    folder = old_style(tmp_path / "m", numbers(64, 32))
    with pytest.raises(SpecError, match="is a saved_model model"):
        compare(folder, folder)
