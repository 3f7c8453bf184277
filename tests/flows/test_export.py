"""A run of any kind ends as a folder that others load, number by number what was trained."""

import json
from pathlib import Path

import pytest
import torch

from cnai import api
from cnai.core.errors import DataError, SpecError
from cnai.core.runfolder import RunFolder
from cnai.flows.export import export_again
from cnai.flows.folder import spec_of
from cnai.flows.model import trained
from cnai.models import load_decoder
from command_line import runner
from models_folder import save_folder
from models_shapes import QWEN3, tokens

pytestmark = [pytest.mark.dist, pytest.mark.slow]
LAYOUT = {"data_parallel": {"size": 2}, "model_parallel": {"size": 2}}


def train(folder: Path, **changes: object) -> RunFolder:
    """Train two steps on four ranks, from a model folder."""
    text = folder / "text.txt"
    text.write_text("abab ba abba\n\n" * 400)
    save_folder(folder / "model", QWEN3, stir=True)
    spec = {
        "name": "run", "output": str(folder), **LAYOUT,
        "model": {"huggingface": str(folder / "model"), "sequence": 12},
        "data": {"source": str(text), "validation_fraction": 0.2},
        "train": {"steps": 2, "batch": 4, "warmup_steps": 0, **changes},
    }  # fmt: skip
    api.train(spec)
    return RunFolder(folder / "run")


@pytest.fixture(scope="module", params=["weights", "adapters"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    lora = {"lora": {"rank": 2, "targets": ["q_proj", "o_proj"]}}
    changes = lora if request.param == "adapters" else {}
    return train(tmp_path_factory.mktemp(request.param), **changes)


@pytest.mark.filterwarnings("ignore")
def test_the_folder_has_the_logits_of_the_checkpoint_also_in_transformers(run, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    artifact = export_again(run, tmp_path / "out", step=None)
    ours = trained(spec_of(run), run, 2).eval()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    x = tokens(QWEN3)
    with torch.no_grad():
        assert torch.equal(load_decoder(tmp_path / "out")(x), ours(x))
        assert torch.allclose(theirs(x).logits, ours(x), atol=1e-4)
        start = load_decoder(run.root.parent / "model")
        assert not torch.allclose(start(x), ours(x), atol=1e-4)
    assert artifact.source == "checkpoints/step-2"


def test_a_step_that_is_not_there_is_refused(run, tmp_path: Path):
    with pytest.raises(DataError, match="step 1"):
        export_again(run, tmp_path / "out", step=1)


def test_the_verb_tells_where_the_model_lies(run, tmp_path: Path, capsys):
    ran = runner(capsys)("export", run.root, "--output", tmp_path / "out", "--step", 2, "--json")
    assert (ran.code, ran.json["path"]) == (0, str(tmp_path / "out"))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "qwen3"


def test_a_folder_of_other_files_is_kept(run, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SpecError, match="no artifact"):
        export_again(run, tmp_path, step=None)


def test_adapters_of_a_model_that_changed_since_are_refused(tmp_path: Path):
    run = train(tmp_path, lora={"rank": 2})
    save_folder(tmp_path / "model", QWEN3, seed=1)
    with pytest.raises(DataError, match="trained beside"):
        export_again(run, tmp_path / "out", step=None)
    assert not (tmp_path / "out").exists()
