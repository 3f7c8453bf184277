"""Kill, a full disk, and two at once: the target is whole or absent."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import compress_process
from cnai.compress import read_artifact
from cnai.compress.decoder import Guard, quantize
from cnai.core.errors import RunError
from models_folder import save_folder
from models_shapes import TINY, tokens

ROWS = tokens(TINY, rows=6).numpy()
GUARD = Guard(allowed_loss=0.1)
COMMAND = [sys.executable, compress_process.__file__]


def start(*arguments: Path | str) -> subprocess.Popen[str]:
    environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)], env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.dist
@pytest.mark.parametrize("point", [("quantize", "1"), ("verify", "6")])
@pytest.mark.parametrize("old", [False, True], ids=["no target", "old target"])
def test_a_killed_run_leaves_no_half_target_and_runs_again(tmp_path: Path, point, old):
    save_folder(tmp_path / "model")
    if old:
        quantize(tmp_path / "model", tmp_path / "int8", ROWS, guard=GUARD)
    process = start(tmp_path / "model", tmp_path / "int8", *point)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "int8").exists() == old
    if old:
        assert read_artifact(tmp_path / "int8")
    quantize(tmp_path / "model", tmp_path / "int8", ROWS, guard=GUARD)
    assert read_artifact(tmp_path / "int8")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "int8"}


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_at_once_end_with_one_whole_artifact(tmp_path: Path):
    save_folder(tmp_path / "model")
    processes = [start(tmp_path / "model", tmp_path / "int8") for _ in range(2)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes in ([0, 0], [0, RunError.exit_code]), errors
    assert read_artifact(tmp_path / "int8")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "int8"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_meanwhile_is_an_error_with_a_hint_and_nothing_is_lost(
    tmp_path: Path, small_disk: Path
):
    save_folder(tmp_path / "model")
    quantize(tmp_path / "model", small_disk / "int8", ROWS, guard=GUARD)
    filler = small_disk / "filler"

    def fill_the_disk(stage: str, _done: int, _total: int) -> None:
        if stage == "quantize" and not filler.exists():
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(bytes(512 * 1024))

    with pytest.raises(RunError, match="no space left") as caught:
        quantize(tmp_path / "model", small_disk / "int8", ROWS, progress=fill_the_disk)
    assert "free space" in caught.value.hint
    assert read_artifact(small_disk / "int8")
    assert {path.name for path in small_disk.iterdir()} == {"int8", "filler"}


def test_a_disk_that_is_full_from_the_start_is_found_before_the_work(
    tmp_path: Path, small_disk: Path
):
    save_folder(tmp_path / "model")
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(bytes(512 * 1024))
    stages = []
    with pytest.raises(RunError, match="only 0 B are free"):
        quantize(
            tmp_path / "model", small_disk / "int8", ROWS,
            progress=lambda *call: stages.append(call),
        )  # fmt: skip
    assert not stages
