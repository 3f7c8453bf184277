from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.compress.formats.recognise import Format, recognise, top_fields
from cnai.compress.formats.tensorflow_messages import SavedModel
from cnai.core.errors import CnaiError, DataError, SpecError
from graphs_for_tests import onnx_perceptron, perceptron, saved


def test_a_frozen_graph_is_told_by_its_content(tmp_path: Path):
    assert recognise(saved(perceptron(), tmp_path / "model.onnx")) is Format.GRAPHDEF


def test_an_onnx_model_is_told_by_its_content(tmp_path: Path):
    assert recognise(saved(onnx_perceptron(), tmp_path / "model.pb")) is Format.ONNX


@pytest.mark.parametrize("name", ["saved_model", "gguf"])
def test_other_models_are_told_by_their_content(tmp_path: Path, name):
    model = SavedModel(saved_model_schema_version=1)
    model.meta_graphs.add().graph_def.CopyFrom(perceptron())
    content = {"saved_model": model.SerializeToString(), "gguf": b"GGUF" + bytes(20)}[name]
    (tmp_path / "x").write_bytes(content)
    assert recognise(tmp_path / "x") == name


def test_a_folder_is_told_by_its_config(tmp_path: Path):
    (tmp_path / "config.json").write_bytes(b"x")
    assert recognise(tmp_path) is Format.HUGGINGFACE


def test_a_run_is_told_by_its_events(tmp_path: Path):
    (tmp_path / "events").mkdir()
    assert recognise(tmp_path) is Format.RUN


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04" + bytes(30), "zip"),
        (b"\x89HDF\r\n\x1a\n" + bytes(30), "HDF5"),
        (b"\x80\x04" + bytes(30), "pickle"),
        (b"\x1c\0\0\0TFL3" + bytes(30), "TensorFlow Lite"),
        ((2).to_bytes(8, "little") + b"{}", "config.json"),
    ],
)
def test_other_formats_are_refused_by_name(tmp_path: Path, content, kind):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SpecError, match=kind) as caught:
        recognise(tmp_path / "x")
    assert "ONNX" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"x", b"hello there, this is text", bytes(100)])
def test_a_file_of_nothing_known_is_refused(tmp_path: Path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match="no whole file"):
        recognise(tmp_path / "x")


def test_a_graph_that_was_cut_off_is_refused(tmp_path: Path):
    content = perceptron().SerializeToString()
    (tmp_path / "x").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="no whole file"):
        recognise(tmp_path / "x")


def test_a_missing_file_is_told(tmp_path: Path):
    with pytest.raises(DataError, match="no model at"):
        recognise(tmp_path / "absent")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_walked_without_a_crash(content):
    found = top_fields(content)
    assert found is None or all(number > 0 for number, _ in found)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_file_is_recognised_or_refused(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(content)
    try:
        assert recognise(file) in Format
    except CnaiError as error:
        assert error.hint
