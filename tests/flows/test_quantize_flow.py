import importlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from chain_case import write_texts
from folders_for_tests import layers, save_shards
from graphs_for_tests import onnx_perceptron, saved

pytestmark = [pytest.mark.slow, pytest.mark.dist]


@pytest.fixture
def model(place, finished):
    """A model folder that no run surrounds, as somebody else's would be."""
    folder = place / "model"
    shutil.copytree(finished.artifacts / "model", folder)
    (folder / "manifest.json").unlink()
    return folder


def spoil(folder):
    """Move weight out of the norms into one column, which changes nothing but ruins INT8.

    A row's scale follows its largest weight, so all others round to zero.
    """
    file = folder / "model.safetensors"
    weights = load_file(file)
    for name, tensor in weights.items():
        if "input_layernorm" in name or "post_attention_layernorm" in name:
            tensor[0] /= 5000
        elif any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")):
            tensor[:, 0] *= 5000
    save_file(weights, file, metadata={"format": "pt"})


def words(source, target, *more):
    return ("quantize", "--input_model", source, "--output_model", target, *more)


@pytest.mark.parametrize("spelling", ["_", "-"])
def test_a_run_is_quantized_in_one_line(ai_cli, finished, place, spelling):
    flags = (f"--input{spelling}model", finished.root, f"--output{spelling}model", place / "small")
    ran = ai_cli("quantize", *flags, "--precision", "INT8", "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["precision"], ran.json["quality"]["samples"]) == ("int8", 24)
    assert (place / "small" / "model.safetensors").stat().st_size < 60_000


def test_the_result_is_shown_as_a_line_and_the_next_command(ai_cli, finished, place):
    ran = ai_cli(*words("runs/tiny", "small", "--precision", "int8"))
    head, row = ran.out.splitlines()
    assert head.split()[:3] == ["precision", "size", "perplexity"]
    assert row.startswith("INT8")
    assert "next: ai-cli serve small" in ran.err


def test_a_run_is_measured_on_other_text_when_that_is_given(ai_cli, finished, place):
    write_texts(place / "other", files=12)
    ran = ai_cli(*words(finished.root, "small", "--data", "other", "--json"))
    assert ran.code == 0, ran.err
    assert ran.json["quality"]["samples"] not in {24, 0}


def test_a_model_folder_is_quantized_on_the_text_that_is_named(ai_cli, model, place):
    ran = ai_cli(*words(model, "small", "--data", "texts", "--json"))
    assert ran.code == 0, ran.err
    assert ran.json["quality"]["relative_loss"] <= 0.01
    assert {path.name for path in (place / "small").iterdir()} >= {"config.json", "tokenizer.json"}


def test_moving_weight_into_one_column_changes_nothing_but_the_numbers(model):
    from cnai.models import load_decoder

    tokens = torch.arange(32).reshape(2, 16)
    before = load_decoder(model)(tokens)
    spoil(model)
    torch.testing.assert_close(load_decoder(model)(tokens), before, atol=1e-4, rtol=1e-4)


@pytest.fixture
def impassable(monkeypatch):
    """Let no model pass the gate."""
    gate = importlib.import_module("cnai.compress.decoder.quantize")
    monkeypatch.setattr(gate, "passes", lambda _quality: False)


def test_a_model_that_int8_would_ruin_keeps_the_hurt_layers_as_floats(ai_cli, model, place):
    spoil(model)
    ran = ai_cli(*words(model, "small", "--data", "texts", "--max-loss", "0.001", "--json"))
    assert ran.code == 0, ran.err
    assert ran.json["quality"]["relative_loss"] <= 0.001
    report = json.loads((place / "small" / "report.json").read_text())
    assert report["attempts"][0]["quality"]["relative_loss"] > 0.001
    assert any("guard" in one["reason"] for one in report["tensors"])


@pytest.mark.usefixtures("impassable")
def test_a_model_that_loses_too_much_is_refused_and_the_target_stays(ai_cli, model, place):
    (place / "small").mkdir()
    (place / "small" / "manifest.json").write_text("mine")
    ran = ai_cli(*words(model, "small", "--data", "texts"))
    assert (ran.code, ran.out) == (6, ""), ran.err
    assert "error: perplexity went from" in ran.err
    assert "small-above-limit" in ran.err
    assert (place / "small" / "manifest.json").read_text() == "mine"
    assert (place / "small-above-limit" / "report.md").is_file()
    assert [path.name for path in place.glob(".small*")] == []


@pytest.mark.usefixtures("impassable")
def test_a_refused_model_is_told_as_one_object(ai_cli, model, place):
    ran = ai_cli(*words(model, "small", "--data", "texts", "--json"))
    assert (ran.code, ran.json["code"], ran.json["exit_code"]) == (6, "accuracy", 6)
    assert not (place / "small").exists()


@pytest.mark.usefixtures("impassable")
def test_a_refused_compression_ends_the_chain_and_keeps_what_came_before(ai_cli, finished):
    (finished.results / "compress.json").unlink()
    shutil.rmtree(finished.artifacts / "model-int8")
    ran = ai_cli("run", "run.yaml", "-y")
    assert (ran.code, ran.out) == (6, ""), ran.err
    assert not (finished.artifacts / "model-int8").exists()
    assert (finished.artifacts / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("precision", ["int4", "fp8", "bf16", "auto"])
def test_every_precision_makes_a_model_that_is_measured(ai_cli, model, precision):
    flags = ("--data", "texts", "--precision", precision, "--max-loss", "0.5", "--json")
    ran = ai_cli(*words(model, "small", *flags))
    assert ran.code == 0, ran.err
    assert ran.json["quality"]["samples"] > 0


def test_a_model_that_nobody_here_can_run_is_quantized_and_told_as_not_measured(ai_cli, place):
    save_shards(place / "foreign", [layers(0, 1), layers(1, 1)])
    ran = ai_cli(*words("foreign", "small", "--json"))
    assert ran.code == 0, ran.err
    assert ran.json["quality"] is None
    assert "not measured: `model_type` is `foreign`" in ran.err
    assert "not measured" in (place / "small" / "report.md").read_text()


def test_a_model_is_not_run_when_that_is_not_wanted(ai_cli, model, place):
    ran = ai_cli(*words(model, "small", "--unmeasured"))
    assert ran.code == 0, ran.err
    assert "not measured: as asked" in ran.err


def test_a_file_does_not_take_a_precision_of_folders(ai_cli, place):
    saved(onnx_perceptron(), place / "model.onnx")
    ran = ai_cli(*words("model.onnx", "small.onnx", "--precision", "int4"))
    assert (ran.code, "int4 is for folders" in ran.err) == (2, True)


def test_a_model_is_not_quantized_into_itself(ai_cli, model):
    ran = ai_cli(*words(model, model, "--data", "texts"))
    assert ran.code == 2, ran.err
    assert (model / "model.safetensors").is_file()


def test_a_compressed_model_is_not_compressed_again(ai_cli, finished):
    ran = ai_cli(*words(finished.artifacts / "model-int8", "small", "--data", "texts"))
    assert (ran.code, "compressed already" in ran.err) == (4, True)


def test_a_run_that_is_not_trained_yet_cannot_be_quantized(ai_cli, place, finished):
    for step in finished.checkpoint_steps():
        shutil.rmtree(finished.checkpoint(step))
    ran = ai_cli(*words(finished.root, "small"))
    assert (ran.code, "has no checkpoint" in ran.err) == (4, True)


def test_what_was_quantized_is_listed(ai_cli, finished):
    ran = ai_cli("inspect", finished.root, "--json")
    assert ran.code == 0
    assert "int8" in {group["dtype"].lower() for group in ran.json["groups"]}
    assert Path(ran.json.get("path", "model-int8")).name == "model-int8"
