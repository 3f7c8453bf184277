from pathlib import Path

import pytest

from cnai.compress.decoder import quantize
from cnai.compress.decoder.source import open_source
from cnai.core.errors import DataError
from models_folder import save_folder
from models_shapes import TINY, tokens


def test_a_llama_folder_is_opened(tmp_path: Path):
    save_folder(tmp_path)
    assert open_source(tmp_path).shape == TINY


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.pb", "TensorFlow graph"),
        ("model.ONNX", "ONNX"),
        ("model.gguf", "GGUF"),
        ("model.bin", "pickle"),
        ("model.safetensors", "without their config"),
        ("model.xyz", "a file"),
    ],
)
def test_a_file_is_refused_with_what_it_is_and_what_is_read(tmp_path: Path, name, kind):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=kind) as caught:
        open_source(tmp_path / name)
    assert "Hugging Face" in caught.value.hint
    assert "planned: .pb" in caught.value.hint


def test_a_saved_model_is_refused(tmp_path: Path):
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    with pytest.raises(DataError, match="SavedModel"):
        open_source(tmp_path)


def test_a_path_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no model at"):
        open_source(tmp_path / "absent")


def test_a_compressed_model_is_not_compressed_again(tmp_path: Path):
    save_folder(tmp_path / "a")
    quantize(tmp_path / "a", tmp_path / "b", tokens(TINY).numpy(), allowed_loss=0.1)
    with pytest.raises(DataError, match="already"):
        open_source(tmp_path / "b")
