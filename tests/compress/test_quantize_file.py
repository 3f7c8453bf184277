import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cnai.compress import quantize_file
from cnai.compress.formats import onnx_file
from cnai.compress.target import claimed
from cnai.core.errors import DataError, RunError, SpecError
from full_disk import tiny_disk
from graphs_for_tests import numbers, onnx_perceptron, perceptron, saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(onnx_perceptron(), tmp_path / "m.onnx")


def test_a_graph_becomes_a_smaller_graph_with_its_report(tmp_path: Path):
    source = saved(perceptron(numbers(256, 128)), tmp_path / "m.pb")
    report = quantize_file(source, tmp_path / "q.pb", command="again")
    assert report.ratio > 3
    written = json.loads((tmp_path / "q.pb.report.json").read_text())
    assert written["weights"][0]["scheme"] == "int8"
    assert "again" in (tmp_path / "q.pb.report.md").read_text()


def test_outputs_are_compared_where_a_runtime_is_there(tmp_path: Path, model: Path):
    report = quantize_file(model, tmp_path / "q.onnx")
    assert report.agreement is not None
    assert report.agreement.cosine > 0.999
    assert report.agreement.inputs == "made up"


def test_nothing_but_the_model_and_its_report_is_left(tmp_path: Path, model: Path):
    quantize_file(model, tmp_path / "out" / "q.onnx")
    names = sorted(one.name for one in (tmp_path / "out").iterdir())
    assert names == ["q.onnx", "q.onnx.report.json", "q.onnx.report.md"]


def test_a_result_of_ours_is_replaced(tmp_path: Path, model: Path):
    quantize_file(model, tmp_path / "q.onnx")
    first = (tmp_path / "q.onnx").read_bytes()
    quantize_file(model, tmp_path / "q.onnx")
    assert (tmp_path / "q.onnx").read_bytes() == first


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path, model: Path):
    (tmp_path / "q.onnx").write_text("mine")
    with pytest.raises(SpecError, match="did not write"):
        quantize_file(model, tmp_path / "q.onnx")
    assert (tmp_path / "q.onnx").read_text() == "mine"


def test_the_source_is_not_overwritten(model: Path):
    with pytest.raises(SpecError, match="overwrite its source"):
        quantize_file(model, model)


def test_a_quantized_model_is_not_quantized_again(tmp_path: Path, model: Path):
    quantize_file(model, tmp_path / "q.onnx")
    with pytest.raises(SpecError, match="quantized already"):
        quantize_file(tmp_path / "q.onnx", tmp_path / "r.onnx")


def test_a_model_without_large_weights_is_refused_with_the_reason(tmp_path: Path):
    source = saved(perceptron(numbers(4, 4)), tmp_path / "m.pb")
    with pytest.raises(SpecError, match="too small to gain"):
        quantize_file(source, tmp_path / "q.pb")


def test_a_full_disk_leaves_the_old_result(tmp_path: Path):
    with tiny_disk(tmp_path / "disk", size="1m") as disk:
        source = saved(perceptron(numbers(1200, 1000)), tmp_path / "big.pb")
        (disk / "q.pb").write_bytes(b"old")
        (disk / "q.pb.report.json").write_text("{}")
        with pytest.raises(RunError, match=r"no space|are free"):
            quantize_file(source, disk / "q.pb")
        assert (disk / "q.pb").read_bytes() == b"old"
        assert sorted(one.name for one in disk.iterdir()) == ["q.pb", "q.pb.report.json"]


def test_a_second_run_to_the_same_target_is_refused(tmp_path: Path, model: Path):
    with claimed(tmp_path / "q.onnx"), pytest.raises(RunError, match="another process"):
        quantize_file(model, tmp_path / "q.onnx")


def test_a_model_that_breaks_is_not_written(tmp_path: Path, model: Path, monkeypatch):
    def broken(self, target: Path) -> None:
        target.write_bytes(onnx_perceptron(17).SerializeToString()[:-40])

    monkeypatch.setattr(onnx_file.OnnxFile, "save", broken)
    with pytest.raises(RunError):
        quantize_file(model, tmp_path / "q.onnx")
    assert not (tmp_path / "q.onnx").exists()


def test_a_weight_that_is_no_number_leaves_nothing(tmp_path: Path):
    weight = numbers(64, 32)
    weight[0, 0] = np.nan
    source = saved(perceptron(weight), tmp_path / "m.pb")
    with pytest.raises(DataError, match="`weight`"):
        quantize_file(source, tmp_path / "q.pb")
    assert [one.name for one in tmp_path.iterdir()] == ["m.pb"]


def test_the_result_runs_at_once_in_its_runtime(tmp_path: Path, model: Path):
    quantize_file(model, tmp_path / "q.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"))
    assert session.run(None, {"x": numbers(2, 64)})[0].shape == (2, 32)


def test_a_kill_between_report_and_model_does_not_lock_the_target(
    tmp_path: Path, model: Path, monkeypatch
):
    target = tmp_path / "q.onnx"

    def killed(self: Path, place: Path) -> Path:
        if place == target:
            raise KeyboardInterrupt
        return replace(self, place)

    replace = Path.replace
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        quantize_file(model, target)
    monkeypatch.undo()
    quantize_file(model, target)
    assert target.is_file()


def test_a_result_always_has_its_report_beside_it(tmp_path: Path, model: Path, monkeypatch):
    """Without one the next run would take the result for somebody else's file."""
    target, seen = tmp_path / "q.onnx", []

    def watched(self: Path, place: Path) -> Path:
        if place == target:
            seen.append((tmp_path / "q.onnx.report.json").is_file())
        return replace(self, place)

    replace = Path.replace
    monkeypatch.setattr(Path, "replace", watched)
    quantize_file(model, target)
    assert seen == [True]
