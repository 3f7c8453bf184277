from pathlib import Path

import numpy as np
import pytest

from cnai.compress import quantize_file
from cnai.compress.formats.crc32c import crc32c
from cnai.compress.formats.graphdef import GraphDefFile
from cnai.compress.formats.saved_model import SavedModelFile
from cnai.compress.formats.sorted_table import read_table, unsnappy
from cnai.compress.formats.tensor_bundle import TensorBundle
from cnai.compress.formats.tensorflow_messages import SavedModel
from cnai.core.errors import DataError, SpecError
from graphs_for_tests import numbers
from saved_model_for_tests import new_style, old_style, table

WEIGHT = numbers(64, 32)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return old_style(tmp_path / "m", WEIGHT)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return new_style(tmp_path / "m", WEIGHT)


def weights(file) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    return {one.name: (one.use, one.axes) for one in file.weights()}


def ops(graph) -> set[str]:
    bodies = [graph.node, *(one.node_def for one in graph.library.function)]
    return {node.op for body in bodies for node in body}


def test_a_variable_at_the_top_becomes_a_constant(old: Path):
    file = SavedModelFile(old)
    (weight,) = file.weights()
    assert (weight.name, weight.use, weight.axes) == ("w", "MatMul", (1,))
    assert np.array_equal(file.read(weight), WEIGHT)


def test_a_variable_of_a_function_is_put_into_it(new: Path):
    file = SavedModelFile(new)
    (weight,) = file.weights()
    assert weight.name.endswith("/:/handle")
    assert (weight.use, weight.axes) == ("MatMul", (1,))
    assert np.array_equal(file.read(weight), WEIGHT)


def test_a_variable_of_several_calls_is_stored_once_and_passed_in(tmp_path: Path):
    file = SavedModelFile(new_style(tmp_path / "m", WEIGHT, twice=True))
    assert weights(file) == {"Variable": ("MatMul", (1,))}
    assert len(file.graph.library.function) == 1


@pytest.mark.parametrize("kind", [old_style, new_style])
def test_nothing_of_variables_and_their_restoring_is_left(tmp_path: Path, kind):
    file = SavedModelFile(kind(tmp_path / "m", WEIGHT))
    assert not ops(file.graph) & {"VarHandleOp", "ReadVariableOp", "RestoreV2", "AssignVariableOp"}


@pytest.mark.parametrize("kind", [old_style, new_style])
def test_a_folder_becomes_a_folder_without_variables(tmp_path: Path, kind):
    source = kind(tmp_path / "m", numbers(256, 128))
    report = quantize_file(source, tmp_path / "small")
    assert report.ratio > 3
    assert [one.name for one in (tmp_path / "small").iterdir()] == ["saved_model.pb"]
    model = SavedModel()
    model.ParseFromString((tmp_path / "small" / "saved_model.pb").read_bytes())
    (meta,) = model.meta_graphs
    assert list(meta.signature_def) == ["serving_default"]
    assert (meta.saver_def, meta.object_graph_def) == (b"", b"")


def test_a_folder_becomes_a_graph_when_the_name_says_so(tmp_path: Path, old: Path):
    quantize_file(old, tmp_path / "q.pb")
    graph = GraphDefFile(tmp_path / "q.pb").graph
    assert {"x", "y", "w"} <= {node.name for node in graph.node}
    assert not ops(graph) & {"VarHandleOp", "AssignVariableOp"}


def test_the_file_in_the_folder_may_be_given(tmp_path: Path, old: Path):
    quantize_file(old / "saved_model.pb", tmp_path / "q.pb")
    assert (tmp_path / "q.pb").is_file()


def test_a_result_of_ours_is_replaced(tmp_path: Path, old: Path):
    quantize_file(old, tmp_path / "small")
    first = (tmp_path / "small" / "saved_model.pb").read_bytes()
    quantize_file(old, tmp_path / "small")
    assert (tmp_path / "small" / "saved_model.pb").read_bytes() == first


def test_a_model_that_changes_its_variables_is_refused(tmp_path: Path, old: Path):
    model = SavedModel()
    model.ParseFromString((old / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    graph.node.add(name="count", op="AssignAddVariableOp", input=["w", "x"])
    next(node for node in graph.node if node.name == "y").input.append("^count")
    (old / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(SpecError, match="changes its variable `w`"):
        SavedModelFile(old)


def test_a_table_of_words_cannot_become_a_graph(tmp_path: Path, old: Path):
    model = SavedModel()
    model.ParseFromString((old / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0].graph_def
    graph.node.add(name="words", op="HashTableV2")
    next(node for node in graph.node if node.name == "y").input.append("^words")
    (old / "saved_model.pb").write_bytes(model.SerializeToString())
    SavedModelFile(old, tmp_path / "folder")
    with pytest.raises(SpecError, match="table"):
        SavedModelFile(old, tmp_path / "q.pb")


def test_no_signature_is_told(tmp_path: Path, old: Path):
    model = SavedModel()
    model.ParseFromString((old / "saved_model.pb").read_bytes())
    model.meta_graphs[0].signature_def.clear()
    (old / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(SpecError, match="no signature"):
        SavedModelFile(old)


@pytest.mark.parametrize("name", ["variables.index", "variables.data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_checkpoint_is_told(old: Path, name, damage):
    file = old / "variables" / name
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        content[10] ^= 1
        file.write_bytes(content if damage == "flip" else content[:-9])
    with pytest.raises(DataError):
        SavedModelFile(old)


def test_every_key_of_a_table_is_read():
    entries = {f"key{number}".encode(): bytes([number]) * number for number in range(40)}
    assert read_table(table(entries), where="here") == entries


def test_what_snappy_compressed_is_restored():
    # 11 bytes: the literal `abcd`, then 7 bytes from 4 back, which overlap themselves.
    assert unsnappy(b"\x0b\x0cabcd\x0d\x04") == b"abcdabcdabc"


@pytest.mark.parametrize("content", [b"\x05\x0cabcd", b"\x04\x01\x09", b"\xff\xff\xff\xff\x0f"])
def test_what_snappy_cannot_have_written_is_refused(content):
    with pytest.raises(ValueError, match="block"):
        unsnappy(content)


@pytest.mark.parametrize("size", [0, 1, 9, 255, 256, 257, 1001, 70_000])
def test_checksums_of_any_length_are_right(monkeypatch, size):
    monkeypatch.setattr("cnai.compress.formats.crc32c._ROWS", 4)
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8).tobytes()
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    assert crc32c(content) == value ^ 0xFFFFFFFF


def test_the_checksum_of_the_standard_s_example_is_known():
    assert crc32c(b"123456789") == 0xE3069283


def test_a_missing_variable_is_told_by_name(old: Path):
    bundle = TensorBundle(old / "variables" / "variables")
    with pytest.raises(DataError, match="no variable `v`"):
        bundle.read("v")
