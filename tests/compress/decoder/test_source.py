from pathlib import Path

import pytest

from cnai.compress.decoder import Guard, quantize
from cnai.compress.decoder.source import open_source
from cnai.core.errors import DataError
from models_folder import save_folder
from models_shapes import TINY, tokens


def test_a_llama_folder_is_opened(tmp_path: Path):
    save_folder(tmp_path)
    assert open_source(tmp_path).shape == TINY


def test_a_file_is_refused_with_what_is_read(tmp_path: Path):
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(DataError, match="is a file") as caught:
        open_source(tmp_path / "model.bin")
    assert "Hugging Face" in caught.value.hint


def test_a_path_without_a_model_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no model at"):
        open_source(tmp_path / "absent")


def test_a_compressed_model_is_not_compressed_again(tmp_path: Path):
    save_folder(tmp_path / "a")
    quantize(tmp_path / "a", tmp_path / "b", tokens(TINY).numpy(), guard=Guard(allowed_loss=0.1))
    with pytest.raises(DataError, match="already"):
        open_source(tmp_path / "b")
