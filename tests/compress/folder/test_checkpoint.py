import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.compress.folder import checkpoint as module
from cnai.compress.folder.checkpoint import Checkpoint, blocks, read
from cnai.core.errors import DataError
from folders_for_tests import drawn, layers, save_shards


def test_tensors_of_all_files_are_found_where_they_lie(tmp_path: Path):
    save_shards(tmp_path, [layers(0, 1), layers(1, 1)])
    checkpoint = Checkpoint(tmp_path)
    assert len(checkpoint.shards) == 2
    for name, values in {**layers(0, 1), **layers(1, 1)}.items():
        np.testing.assert_array_equal(read(checkpoint.tensors[name]), values)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_blocks_together_are_the_tensor(tmp_path: Path, kind, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 20)
    values = drawn((7, 9), kind)
    save_shards(tmp_path, [{"a.weight": values}])
    parts = list(blocks(Checkpoint(tmp_path).tensors["a.weight"]))
    assert [row for row, _ in parts] == [0, 2, 4, 6]
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), values)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 4), (4, 0), (2, 3, 4)])
def test_a_tensor_of_any_rank_is_read(tmp_path: Path, shape):
    values = drawn(shape)
    save_shards(tmp_path, [{"a": values, "b": drawn((2, 2))}])
    np.testing.assert_array_equal(read(Checkpoint(tmp_path).tensors["a"]), values)


def test_a_file_that_is_cut_short_is_refused_before_any_work(tmp_path: Path):
    save_shards(tmp_path, [layers(0, 1)])
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut short"):
        Checkpoint(tmp_path)


def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path):
    save_shards(tmp_path, [{"a.weight": drawn((8, 8))}])
    tensor = Checkpoint(tmp_path).tensors["a.weight"]
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="ends inside"):
        read(tensor)


def test_an_index_that_names_a_missing_file_is_refused(tmp_path: Path):
    save_shards(tmp_path, [layers(0, 1), layers(1, 1)])
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(DataError, match="model-00002"):
        Checkpoint(tmp_path)


def test_an_index_cannot_reach_out_of_the_folder(tmp_path: Path):
    save_shards(tmp_path / "a", [layers(0, 1), layers(1, 1)])
    index = {"weight_map": {"x": "../../secret.safetensors"}}
    (tmp_path / "a/model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="secret"):
        Checkpoint(tmp_path / "a")


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=60)
def test_garbage_is_refused_and_nothing_else_happens(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("garbage")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError):
        Checkpoint(folder)


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.recursive(st.none() | st.integers(-9, 9) | st.text(max_size=4), st.lists, max_leaves=4)
        | st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "I4", 3]),
                "shape": st.lists(st.integers(-2, 5), max_size=2),
                "data_offsets": st.lists(st.integers(-5, 90), max_size=3),
            }
        ),
        max_size=3,
    )
)
@settings(deadline=None, max_examples=80)
def test_a_head_that_says_anything_is_read_or_refused(tmp_path_factory, head):
    folder = tmp_path_factory.mktemp("head")
    (folder / "config.json").write_text("{}")
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    try:
        for tensor in Checkpoint(folder).tensors.values():
            read(tensor)
    except DataError:
        pass
