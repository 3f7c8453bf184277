import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import stream_process
from cnai.compress import read_artifact
from cnai.compress.folder import (
    Checkpoint,
    FolderWish,
    Form,
    select,
    size_after,
    stream,
    unfinished,
)
from cnai.compress.folder.unmeasured import quantize_unmeasured
from cnai.core.errors import DataError, RunError
from folders_for_tests import drawn, layers, save_shards

SHARDS = [layers(0, 2), layers(2, 2), layers(4, 2)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_shards(tmp_path / "model", SHARDS)
    return tmp_path / "model"


def compressed(source: Path, target: Path, form: Form = Form.W8A16, **more) -> Path:
    quantize_unmeasured(source, target, FolderWish(form=form), why="asked", **more)
    return target


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if "report" not in file.name and file.name != "manifest.json"
    }


def test_the_new_folder_is_split_as_the_old_one(source: Path, tmp_path: Path):
    made = compressed(source, tmp_path / "small")
    index = json.loads((made / "model.safetensors.index.json").read_text())
    held = {name: file.name for file in made.glob("*.safetensors") for name in load_file(file)}
    assert index["weight_map"] == held
    assert index["metadata"]["total_size"] == sum(
        values.nbytes for file in made.glob("*.safetensors") for values in load_file(file).values()
    )
    assert {file.name for file in made.glob("*.safetensors")} == {
        file.name for file in source.glob("*.safetensors")
    }


@pytest.mark.parametrize("form", [Form.W8A16, Form.W8A8, Form.W4A16, Form.FP8, Form.BF16])
def test_the_size_is_known_before(source: Path, tmp_path: Path, form):
    checkpoint = Checkpoint(source)
    expected = size_after(checkpoint, select(checkpoint, FolderWish(form=form)))
    made = Checkpoint(compressed(source, tmp_path / "small", form))
    assert made.size_bytes == expected


def test_nothing_but_the_target_is_left(source: Path, tmp_path: Path):
    compressed(source, tmp_path / "small")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "small"}


def test_the_artifact_says_that_nothing_was_measured(source: Path, tmp_path: Path):
    artifact = read_artifact(compressed(source, tmp_path / "small"))
    assert artifact.quality is None
    assert artifact.precision == "int8"
    assert "not measured" in (tmp_path / "small/report.md").read_text()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_finite_number_is_refused_with_its_name(tmp_path: Path, broken):
    tensors = layers(0, 1)
    tensors["backbone.blocks.0.mixer.in_proj.weight"][3, 4] = broken
    save_shards(tmp_path / "model", [tensors])
    with pytest.raises(DataError, match=r"1 of 1536 weights of `backbone\.blocks\.0\.mixer\.in"):
        compressed(tmp_path / "model", tmp_path / "small")
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_a_model_that_is_compressed_already_is_refused(source: Path, tmp_path: Path):
    made = compressed(source, tmp_path / "small")
    with pytest.raises(DataError, match="compressed already"):
        compressed(made, tmp_path / "smaller")


def stopped_after(count: int):
    """Return a progress that fails once some bytes are done."""

    def progress(_stage: str, done: int, _total: int) -> None:
        if done >= count:
            raise RunError("stopped", hint="")

    return progress


def test_an_interrupted_run_goes_on_and_ends_as_one_that_was_not(source: Path, tmp_path: Path):
    whole = contents(compressed(source, tmp_path / "whole"))
    half = Checkpoint(source).size_bytes // 2
    with pytest.raises(RunError, match="stopped"):
        compressed(source, tmp_path / "small", progress=stopped_after(half))
    assert not (tmp_path / "small").exists()
    seen: list[int] = []
    compressed(source, tmp_path / "small", progress=lambda _s, done, _t: seen.append(done))
    assert seen[0] > 0
    assert contents(tmp_path / "small") == whole
    assert {path.name for path in tmp_path.iterdir()} == {"model", "small", "whole"}


def interrupted(source: Path, target: Path) -> Path:
    """Finish the first file and stop; return the unfinished folder."""
    size = sum(values.nbytes for values in SHARDS[0].values())
    with pytest.raises(RunError):
        compressed(source, target, progress=stopped_after(size))
    return target.with_name(f".{target.name}.partial")


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_a_finished_file_that_was_harmed_is_made_again(source: Path, tmp_path: Path, harm):
    whole = contents(compressed(source, tmp_path / "whole"))
    first = interrupted(source, tmp_path / "small") / "model-00001-of-00003.safetensors"
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    if harm == "gone":
        first.unlink()
    else:
        first.write_bytes(content if harm == "flip" else content[:-4])
    assert contents(compressed(source, tmp_path / "small")) == whole


@pytest.mark.parametrize("journal", [b"", b"{", b'{"shards": 3}', b"\x00" * 99])
def test_a_journal_that_cannot_be_read_counts_for_nothing(source: Path, tmp_path: Path, journal):
    whole = contents(compressed(source, tmp_path / "whole"))
    interrupted(source, tmp_path / "small")
    (tmp_path / ".small.journal.json").write_bytes(journal)
    assert contents(compressed(source, tmp_path / "small")) == whole


def test_files_of_another_wish_are_not_taken_up(source: Path, tmp_path: Path):
    whole = contents(compressed(source, tmp_path / "whole", Form.FP8))
    interrupted(source, tmp_path / "small")
    assert contents(compressed(source, tmp_path / "small", Form.FP8)) == whole


def test_files_of_a_source_that_changed_are_not_taken_up(source: Path, tmp_path: Path):
    interrupted(source, tmp_path / "small")
    changed = [{name: values * 2 for name, values in shard.items()} for shard in SHARDS]
    save_shards(source, changed)
    whole = contents(compressed(source, tmp_path / "whole"))
    assert contents(compressed(source, tmp_path / "small")) == whole


@pytest.mark.dist
@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(source: Path, tmp_path: Path):
    whole = contents(compressed(source, tmp_path / "whole"))
    half = Checkpoint(source).size_bytes // 2
    words = [sys.executable, stream_process.__file__, source, tmp_path / "small", str(half)]
    environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in words], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / ".small.journal.json").is_file()
    assert contents(compressed(source, tmp_path / "small")) == whole
    assert {path.name for path in tmp_path.iterdir()} == {"model", "small", "whole"}


def test_the_scales_of_a_bfloat16_model_are_stored_as_its_loaders_hold_them(tmp_path: Path):
    save_shards(tmp_path / "model", [layers(0, 1, "BF16")], dtype="bfloat16")
    made = Checkpoint(compressed(tmp_path / "model", tmp_path / "small"))
    scales = {one.dtype for name, one in made.tensors.items() if name.endswith("_scale")}
    assert scales == {"BF16"}


def test_float16_overflow_is_not_written(tmp_path: Path):
    save_shards(tmp_path / "model", [{"a.weight": drawn((4, 4)) * 1e7}])
    with pytest.raises(DataError, match="too large"):
        compressed(tmp_path / "model", tmp_path / "small", Form.FP16)


def test_tokenizer_files_come_along_and_other_weights_do_not(source: Path, tmp_path: Path):
    (source / "chat_template.jinja").write_text("{{ x }}")
    (source / "optimizer.bin").write_bytes(b"x" * 100)
    made = compressed(source, tmp_path / "small")
    assert (made / "chat_template.jinja").is_file()
    assert not (made / "optimizer.bin").exists()


def test_streaming_the_same_again_writes_nothing(source: Path, tmp_path: Path):
    checkpoint = Checkpoint(source)
    choice = select(checkpoint, FolderWish())
    with unfinished(tmp_path / "small") as folder:
        stream(checkpoint, folder, choice)
        times = {file: file.stat().st_mtime_ns for file in folder.path.glob("*.safetensors")}
        stream(checkpoint, folder, choice)
        assert times == {file: file.stat().st_mtime_ns for file in times}
