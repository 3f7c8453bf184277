import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cnai.compress import read_artifact
from cnai.compress.decoder import QuantizedMatrix, quantize
from cnai.compress.decoder.int8 import quantize_int8
from cnai.core.artifact import Precision
from cnai.core.errors import AccuracyError, DataError, RunError, SpecError
from cnai.models import load_decoder, perplexity, sequence_losses
from models_folder import save_folder
from models_shapes import TINY, tokens

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


def bad_quantizer(name: str, weight: torch.Tensor) -> QuantizedMatrix:
    """Turn every weight's sign."""
    good = quantize_int8(name, weight)
    return QuantizedMatrix(values=-good.values, scale=good.scale)


def nan_quantizer(name: str, weight: torch.Tensor) -> QuantizedMatrix:
    good = quantize_int8(name, weight)
    return QuantizedMatrix(values=good.values, scale=good.scale * math.nan)


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


@pytest.mark.parametrize("quantizer", [bad_quantizer, nan_quantizer])
def test_a_bad_quantizer_is_refused_and_writes_nothing(tmp_path: Path, source: Path, quantizer):
    with pytest.raises(AccuracyError, match="perplexity went from"):
        quantize(source, tmp_path / "int8", ROWS, quantizer=quantizer)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_a_bad_quantizer_leaves_the_old_artifact_untouched(tmp_path: Path, source: Path):
    quantize(source, tmp_path / "int8", ROWS)
    before = everything(tmp_path / "int8")
    with pytest.raises(AccuracyError):
        quantize(source, tmp_path / "int8", ROWS, quantizer=bad_quantizer)
    assert everything(tmp_path / "int8") == before


def test_a_gate_of_zero_refuses_what_a_wider_one_lets_pass(tmp_path: Path, source: Path):
    def coarse(name: str, weight: torch.Tensor) -> QuantizedMatrix:
        good = quantize_int8(name, weight)
        return QuantizedMatrix(values=(good.values // 32) * 32, scale=good.scale)

    quality = quantize(source, tmp_path / "a", ROWS, allowed_loss=9.0, quantizer=coarse).quality
    assert quality is not None
    assert quality.relative_loss > 0
    with pytest.raises(AccuracyError, match=r"allowed is 0\.00%"):
        quantize(source, tmp_path / "b", ROWS, allowed_loss=0.0, quantizer=coarse)


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
        quantize(source, tmp_path / "int8", ROWS, allowed_loss=allowed)


def test_the_source_is_not_overwritten(source: Path):
    before = everything(source)
    with pytest.raises(SpecError, match="overwrite"):
        quantize(source, source, ROWS)
    assert everything(source) == before


def test_a_precision_without_a_quantizer_is_refused(tmp_path: Path, source: Path):
    with pytest.raises(SpecError, match="bf16"):
        quantize(source, tmp_path / "x", ROWS, precision=Precision.BF16)


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

    def second_run_meanwhile(name: str, weight: torch.Tensor) -> QuantizedMatrix:
        if not refused:
            with pytest.raises(RunError, match="another process") as caught:
                quantize(source, tmp_path / "int8", ROWS)
            refused.append(caught)
        return quantize_int8(name, weight)

    artifact = quantize(source, tmp_path / "int8", ROWS, quantizer=second_run_meanwhile)
    assert refused
    assert read_artifact(tmp_path / "int8") == artifact
