import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cnai.compress import read_artifact
from cnai.compress.channels import QuantizedArray
from cnai.compress.decoder import Guard, quantize, trial
from cnai.compress.folder import encode
from cnai.compress.folder.rounding import quantized_rows
from cnai.core.artifact import Precision
from cnai.core.errors import AccuracyError, DataError, RunError, SpecError
from cnai.models import load_decoder, perplexity, sequence_losses
from models_folder import save_folder
from models_shapes import TINY, tokens

decoder_quantize = importlib.import_module("cnai.compress.decoder.quantize")
ROWS = tokens(TINY, rows=6).numpy()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small model that is sure of some tokens, so that broken weights cost something."""
    folder = tmp_path / "model"
    save_folder(folder)
    file = folder / "model.safetensors"
    state = {name: value * (3 if value.ndim == 2 else 1) for name, value in load_file(file).items()}
    save_file(state, file, metadata={"format": "pt"})
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def broken_rounding(scale: float):
    """Return a rounding whose scales are wrong by a factor."""

    def wrong(exact, treatment, *, short_scales):
        good = quantized_rows(exact, treatment, short_scales=short_scales)
        return QuantizedArray(values=good.values, scale=good.scale * np.float32(scale))

    return wrong


@pytest.fixture(params=[-1.0, math.nan], ids=["signs", "nan"])
def broken(request, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round wrongly whatever is rounded to scales."""
    for place in (encode, trial):
        monkeypatch.setattr(place, "quantized_rows", broken_rounding(request.param))


@pytest.fixture
def impassable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no model pass."""
    monkeypatch.setattr(decoder_quantize, "passes", lambda _quality: False)


def test_the_artifact_holds_its_measured_quality(tmp_path: Path, source: Path):
    artifact = quantize(source, tmp_path / "int8", ROWS)
    assert read_artifact(tmp_path / "int8") == artifact
    assert artifact.quality is not None
    assert artifact.quality.passed
    assert artifact.quality.samples == 6
    assert artifact.precision == Precision.INT8
    assert artifact.source == str(source)


def test_the_quality_is_that_of_the_files_on_the_disk(tmp_path: Path, source: Path):
    quality = quantize(source, tmp_path / "int8", ROWS).quality
    assert quality is not None
    reloaded = perplexity(sequence_losses(load_decoder(tmp_path / "int8"), ROWS))
    assert quality.after == pytest.approx(reloaded, rel=1e-9)
    assert quality.before == pytest.approx(
        perplexity(sequence_losses(load_decoder(source), ROWS)), rel=1e-9
    )


def test_nothing_but_the_target_is_left(tmp_path: Path, source: Path):
    quantize(source, tmp_path / "int8", ROWS)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "int8"}


def test_folders_above_the_target_are_made(tmp_path: Path, source: Path):
    quantize(source, tmp_path / "a" / "b", ROWS)
    assert read_artifact(tmp_path / "a" / "b")


def test_progress_runs_through_the_three_stages_to_their_ends(tmp_path: Path, source: Path):
    calls = []
    quantize(source, tmp_path / "int8", ROWS, progress=lambda *call: calls.append(call))
    assert list(dict.fromkeys(stage for stage, _, _ in calls)) == ["measure", "quantize", "verify"]
    ends = {stage: (done, total) for stage, done, total in calls}
    assert all(done == total for done, total in ends.values())


@pytest.mark.usefixtures("broken")
def test_layers_that_rounding_breaks_stay_floats(tmp_path: Path, source: Path):
    artifact = quantize(source, tmp_path / "int8", ROWS)
    assert artifact.precision == Precision.BF16
    report = json.loads((tmp_path / "int8/report.json").read_text())
    assert len(report["attempts"]) > 1
    assert {one["form"] for one in report["tensors"]} == {"bf16", "kept"}


@pytest.mark.usefixtures("impassable")
def test_when_nothing_passes_the_best_lies_beside_the_target(tmp_path: Path, source: Path):
    with pytest.raises(AccuracyError, match="perplexity went from") as caught:
        quantize(source, tmp_path / "int8", ROWS)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "int8-above-limit"}
    assert "int8-above-limit" in caught.value.hint
    best = read_artifact(tmp_path / "int8-above-limit").quality
    report = json.loads((tmp_path / "int8-above-limit/report.json").read_text())
    losses = [abs(one["quality"]["relative_loss"]) for one in report["attempts"]]
    assert abs(best.relative_loss) == min(losses)
    assert len(losses) > 1


@pytest.mark.usefixtures("impassable")
def test_the_best_does_not_take_the_place_of_somebody_s_files(tmp_path: Path, source: Path):
    (tmp_path / "int8-above-limit").mkdir()
    (tmp_path / "int8-above-limit/mine.txt").write_text("mine")
    with pytest.raises(AccuracyError):
        quantize(source, tmp_path / "int8", ROWS)
    assert everything(tmp_path / "int8-above-limit") == {"mine.txt": b"mine"}


def test_a_try_that_fails_leaves_the_old_artifact_untouched(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
):
    quantize(source, tmp_path / "int8", ROWS)
    before = everything(tmp_path / "int8")
    monkeypatch.setattr(decoder_quantize, "passes", lambda _quality: False)
    with pytest.raises(AccuracyError):
        quantize(source, tmp_path / "int8", ROWS)
    assert everything(tmp_path / "int8") == before


@pytest.mark.parametrize(
    ("precision", "made"),
    [("int4", "int8"), ("fp8", "fp8"), ("bf16", "bf16"), ("fp16", "fp16"), ("auto", "int8")],
)
def test_a_precision_makes_a_model_that_reads_back(tmp_path: Path, source: Path, precision, made):
    """The tiny model's inputs have no group of 32, so what should be INT4 is INT8."""
    guard = Guard(precision=precision, allowed_loss=0.2)
    artifact = quantize(source, tmp_path / "small", ROWS, guard=guard)
    assert artifact.precision == made
    after = perplexity(sequence_losses(load_decoder(tmp_path / "small"), ROWS))
    assert artifact.quality.after == pytest.approx(after, rel=1e-9)


def test_without_time_the_safe_forms_are_taken(tmp_path: Path, source: Path):
    guard = Guard(precision="auto", budget_s=0, allowed_loss=0.2)
    quantize(source, tmp_path / "small", ROWS, guard=guard)
    report = json.loads((tmp_path / "small/report.json").read_text())
    assert {one["form"] for one in report["tensors"]} <= {"w8a16", "bf16", "kept"}


def test_ignored_layers_take_their_fused_neighbours_along(tmp_path: Path, source: Path):
    guard = Guard(ignore=r"layers\.0\..*q_proj", allowed_loss=0.2)
    quantize(source, tmp_path / "small", ROWS, guard=guard)
    report = json.loads((tmp_path / "small/report.json").read_text())
    kept = {one["name"] for one in report["tensors"] if one["reason"] == "is ignored as asked"}
    assert kept == {f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"}


def test_a_link_keeps_pointing_to_the_place_that_is_replaced(tmp_path: Path, source: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    quantize(source, tmp_path / "link", ROWS)
    assert (tmp_path / "link").is_symlink()
    assert read_artifact(tmp_path / "real")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.zeros((0, 9), np.int64), "no validation text"),
        (np.zeros((2, 1), np.int64), "no validation text"),
        (np.full((2, 9), TINY.vocab), "0 to 39"),
        (np.full((2, 9), -1), "from -1"),
    ],
)
def test_rows_that_cannot_measure_the_model_are_refused(tmp_path: Path, source, rows, said):
    with pytest.raises(DataError, match=said):
        quantize(source, tmp_path / "int8", rows)


@pytest.mark.parametrize("allowed", [-0.1, math.nan, math.inf])
def test_a_gate_that_makes_no_sense_is_refused(tmp_path: Path, source: Path, allowed):
    with pytest.raises(SpecError, match="makes no sense"):
        quantize(source, tmp_path / "int8", ROWS, guard=Guard(allowed_loss=allowed))


def test_the_source_is_not_overwritten(source: Path):
    before = everything(source)
    with pytest.raises(SpecError, match="overwrite"):
        quantize(source, source, ROWS)
    assert everything(source) == before


def test_a_precision_that_nothing_makes_is_refused(tmp_path: Path, source: Path):
    with pytest.raises(SpecError, match="int3"):
        quantize(source, tmp_path / "x", ROWS, guard=Guard(precision="int3"))


def test_a_damaged_source_is_refused_and_writes_nothing(tmp_path: Path, source: Path):
    file = source / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"model\.safetensors"):
        quantize(source, tmp_path / "int8", ROWS)
    assert not (tmp_path / "int8").exists()


def test_a_source_that_is_no_number_already_is_refused_before_compression(tmp_path, source: Path):
    file = source / "model.safetensors"
    state = load_file(file)
    state["model.norm.weight"][:] = torch.nan
    save_file(state, file)
    with pytest.raises(DataError, match="before any compression"):
        quantize(source, tmp_path / "int8", ROWS)


def test_a_second_run_to_the_same_target_is_refused_and_the_first_one_ends_whole(tmp_path, source):
    refused = []

    def second_run_meanwhile(stage: str, _done: int, _total: int) -> None:
        if stage == "quantize" and not refused:
            with pytest.raises(RunError, match="another process") as caught:
                quantize(source, tmp_path / "int8", ROWS)
            refused.append(caught)

    artifact = quantize(source, tmp_path / "int8", ROWS, progress=second_run_meanwhile)
    assert refused
    assert read_artifact(tmp_path / "int8") == artifact
