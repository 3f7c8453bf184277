import numpy as np
import pytest

from cnai.compress import quantize_file
from graphs_for_tests import onnx_perceptron, saved


@pytest.fixture
def models(tmp_path):
    source = saved(onnx_perceptron(), tmp_path / "m.onnx")
    quantize_file(source, tmp_path / "q.onnx")
    return source, tmp_path / "q.onnx"


def test_a_comparison_is_a_line_and_how_well_they_agree(ai_cli, models):
    ran = ai_cli("compare", *models)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0].split()[:3] == ["size", "smaller", "speed"]
    assert "outputs agree: cosine 0.99" in ran.out
    assert "--data" in ran.err


def test_a_comparison_is_one_object(ai_cli, models, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((3, 64), np.float32))
    ran = ai_cli("compare", *models, "--data", tmp_path / "x.npz", "--json")
    assert ran.json["agreement"]["inputs"] == "data"
    assert ran.json["speed"] > 0


def test_a_file_is_inspected_without_its_framework(ai_cli, models):
    ran = ai_cli("inspect", models[0])
    assert ran.out.splitlines()[0].startswith("onnx in")
    assert "MatMul" in ran.out
    assert "next: ai-cli quantize" in ran.err


def test_a_quantized_file_says_so(ai_cli, models):
    assert "1 weights are quantized already" in ai_cli("inspect", models[1]).out


def test_a_file_is_inspected_as_one_object(ai_cli, models):
    assert ai_cli("inspect", models[0], "--json").json["format"] == "onnx"
