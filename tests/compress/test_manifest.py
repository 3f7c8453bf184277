from pathlib import Path

import pytest

from cnai.compress.manifest import MANIFEST_FILE, check_whole, read_artifact, write_manifest
from cnai.core.artifact import Artifact, Precision
from cnai.core.errors import DataError
from models_shapes import TINY


def written(folder: Path) -> Artifact:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return write_manifest(
        folder, target=folder, source="step-9", precision=Precision.FP32, parameters=TINY.parameters
    )


def test_an_artifact_comes_back_as_it_was_written(tmp_path: Path):
    artifact = written(tmp_path / "a")
    assert read_artifact(tmp_path / "a") == artifact
    assert artifact.parameters == TINY.parameters
    assert [file.name for file in artifact.files] == ["config.json", "model.safetensors"]
    assert artifact.size_bytes == 9


def test_a_moved_artifact_says_where_it_lies_now(tmp_path: Path):
    written(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert read_artifact(tmp_path / "b").path == str(tmp_path / "b")


def test_a_folder_without_a_manifest_is_no_artifact(tmp_path: Path):
    with pytest.raises(DataError, match=MANIFEST_FILE) as caught:
        read_artifact(tmp_path)
    assert "quantize" in caught.value.hint


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_bytes(b"weightz"), "content"),
        (lambda file: file.write_bytes(b"weigh"), "5 bytes instead of 7"),
        (lambda file: file.unlink(), "missing"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path: Path, damage, said):
    written(tmp_path / "a")
    damage(tmp_path / "a" / "model.safetensors")
    with pytest.raises(DataError, match=f"model.safetensors.*{said}") as caught:
        read_artifact(tmp_path / "a")
    assert "step-9" in caught.value.hint


def test_a_damaged_manifest_is_refused(tmp_path: Path):
    written(tmp_path / "a")
    (tmp_path / "a" / MANIFEST_FILE).write_text('{"path": 1}')
    with pytest.raises(DataError, match="not a valid Artifact"):
        read_artifact(tmp_path / "a")


def test_a_folder_of_others_has_no_checksums_to_check(tmp_path):
    check_whole(tmp_path)


def test_a_damaged_artifact_is_not_whole(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DataError):
        check_whole(tmp_path)
