import json
from pathlib import Path

import pytest

from cnai.core.errors import DataError
from cnai.core.model_folder import INDEX_FILE, weight_files, write_json


def test_all_safetensors_of_a_folder_are_found_in_order(tmp_path: Path):
    for name in ("b.safetensors", "a.safetensors", "note.txt"):
        (tmp_path / name).touch()
    assert [one.name for one in weight_files(tmp_path)] == ["a.safetensors", "b.safetensors"]


def test_an_index_says_which_count(tmp_path: Path):
    (tmp_path / "old.safetensors").touch()
    write_json(tmp_path / INDEX_FILE, {"weight_map": {"x": "new.safetensors"}})
    assert [one.name for one in weight_files(tmp_path)] == ["new.safetensors"]


def test_a_folder_without_weights_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"no \*.safetensors"):
        weight_files(tmp_path)


def test_json_is_written_for_people(tmp_path: Path):
    write_json(tmp_path / "x.json", {"a": 1})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    assert (tmp_path / "x.json").read_text().endswith("\n")
