from pathlib import Path

from cnai.compress import quantize_file
from cnai.compress.contents import contents_of
from graphs_for_tests import numbers, onnx_perceptron, perceptron, saved
from saved_model_for_tests import old_style


def test_weights_are_grouped_by_use_and_type(tmp_path: Path):
    found = contents_of(saved(perceptron(), tmp_path / "m.pb"))
    groups = [(one.use, one.dtype, one.weights, one.size_bytes) for one in found.groups]
    assert groups == [("MatMul", "float32", 1, 8192), ("", "float32", 1, 128)]
    assert (found.format, found.parameters, found.quantized) == ("graphdef", 64 * 32 + 32, 0)


def test_what_is_quantized_already_is_counted(tmp_path: Path):
    quantize_file(saved(onnx_perceptron(), tmp_path / "m.onnx"), tmp_path / "q.onnx")
    assert contents_of(tmp_path / "q.onnx").quantized == 1


def test_a_saved_model_shows_its_variables(tmp_path: Path):
    found = contents_of(old_style(tmp_path / "m", numbers(64, 32)))
    assert [(one.use, one.largest) for one in found.groups] == [("MatMul", "w")]
    assert found.size_bytes > 64 * 32 * 4
