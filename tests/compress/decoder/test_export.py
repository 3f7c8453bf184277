from pathlib import Path

import pytest
import torch

from cnai.compress import read_artifact
from cnai.compress.decoder import export
from cnai.core.artifact import Precision
from cnai.core.errors import DataError, SpecError
from cnai.models import load_decoder
from models_folder import TOKENIZER
from models_shapes import TINY, filled, tokens


def test_an_exported_model_is_an_artifact_that_gives_the_same_logits(tmp_path: Path):
    decoder, x = filled(TINY), tokens(TINY)
    artifact = export(tmp_path / "a", TINY, decoder.state_dict(), TOKENIZER, "step-3")
    assert read_artifact(tmp_path / "a") == artifact
    assert (artifact.precision, artifact.quality) == (Precision.FP32, None)
    with torch.no_grad():
        assert torch.equal(load_decoder(tmp_path / "a")(x), decoder(x))


def test_exporting_again_replaces_the_artifact(tmp_path: Path):
    export(tmp_path / "a", TINY, filled(TINY, 0).state_dict(), TOKENIZER, "step-3")
    export(tmp_path / "a", TINY, filled(TINY, 1).state_dict(), TOKENIZER, "step-4")
    assert read_artifact(tmp_path / "a").source == "step-4"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_incomplete_state_leaves_the_old_artifact(tmp_path: Path):
    export(tmp_path / "a", TINY, filled(TINY).state_dict(), TOKENIZER, "step-3")
    with pytest.raises(DataError, match="missing"):
        export(tmp_path / "a", TINY, {}, TOKENIZER, "step-4")
    assert read_artifact(tmp_path / "a").source == "step-3"


def test_a_folder_of_other_files_is_not_replaced(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SpecError, match="no artifact"):
        export(tmp_path, TINY, filled(TINY).state_dict(), TOKENIZER, "step-3")
    assert (tmp_path / "thesis.txt").exists()
