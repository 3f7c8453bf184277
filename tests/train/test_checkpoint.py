import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnai.cluster.local import LocalGang
from cnai.core.errors import DataError
from cnai.core.events import CheckpointSaved
from cnai.core.layout import Layout
from cnai.core.runfolder import RunFolder, read_events
from cnai.models import initial_weights, parameter_sizes
from cnai.train.checkpoint import load_weights
from cnai.train.manifest import newest_whole, verify_checkpoint
from training_case import SHAPE, Case, ends_of, logs_of, losses, plan_of

pytestmark = [pytest.mark.dist, pytest.mark.slow]


@pytest.fixture
def run(gang: LocalGang, tmp_path: Path) -> RunFolder:
    """A finished run with checkpoints of steps 2 and 4."""
    return Case(tmp_path, plan_of(Layout(model=2, pipeline=2))).run(gang)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def piece(folder: Path) -> Path:
    return max(folder.glob("*.distcp"), key=lambda file: file.stat().st_size)


def test_only_the_newest_are_kept_and_nothing_unfinished(run: RunFolder) -> None:
    assert names_in(run.checkpoints) == ["step-2", "step-4"]


def test_a_flipped_bit_is_found_and_the_one_before_is_taken(run: RunFolder) -> None:
    damage(piece(run.checkpoint(4)))
    step, rejected = newest_whole(run)
    assert step == 2
    assert "SHA-256" in rejected[0].message


def test_a_cut_file_is_found(run: RunFolder) -> None:
    file = piece(run.checkpoint(4))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="bytes instead of"):
        verify_checkpoint(run.checkpoint(4))


def test_a_missing_file_is_found(run: RunFolder) -> None:
    (run.checkpoint(4) / ".metadata").unlink()
    with pytest.raises(DataError, match=r"lacks `\.metadata`"):
        verify_checkpoint(run.checkpoint(4))


def test_when_all_are_damaged_the_run_does_not_start_from_nothing(run: RunFolder) -> None:
    for step in (2, 4):
        damage(piece(run.checkpoint(step)))
    with pytest.raises(DataError, match="no checkpoint of run"):
        newest_whole(run)


def test_the_whole_model_loads_into_one_process(run: RunFolder) -> None:
    weights = load_weights(run.checkpoint(4), parameter_sizes(SHAPE))
    start = initial_weights(SHAPE, 0)
    changed = [name for name, value in weights.items() if not value.equal(start(name))]
    assert changed == list(weights)


def test_a_model_of_another_shape_is_refused(run: RunFolder) -> None:
    with pytest.raises(DataError, match="cannot read the checkpoint"):
        load_weights(run.checkpoint(4), {"layers.9.attention_norm.weight": (32,)})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB. Mounting needs root, which the test machines have."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_fails_the_save_and_keeps_the_checkpoint_before(
    gang: LocalGang, small_disk: Path
) -> None:
    case = Case(small_disk / "run", plan_of(Layout(pipeline=2)), steps=2)
    run = case.run(gang)
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize - 100_000))
    case.steps, case.resume_step, case.attempt = 4, 2, 1
    case.start(gang)
    codes = ends_of(gang)
    assert set(codes.values()) != {0}
    assert "no space left" in logs_of(run)
    assert names_in(run.checkpoints) == ["step-2"]
    verify_checkpoint(run.checkpoint(2))


def test_a_full_disk_in_the_background_ends_the_run_within_a_few_steps(
    gang: LocalGang, small_disk: Path
) -> None:
    case = Case(small_disk / "run", plan_of(Layout(pipeline=2)), steps=2)
    run = case.run(gang)
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize - 100_000))
    case.steps, case.resume_step, case.attempt = 10_000, 2, 1
    case.start(gang)
    codes = ends_of(gang)
    assert set(codes.values()) != {0}
    assert "no space left" in logs_of(run)
    assert run.checkpoint_steps() == [2]
    assert max(losses(run)) < 500
    verify_checkpoint(run.checkpoint(2))


def test_an_event_says_how_long_training_waited(gang: LocalGang, tmp_path: Path) -> None:
    case = Case(tmp_path, plan_of(Layout(data=2)), steps=4, slow_save=0.2)
    saved = [e for e in read_events(case.run(gang)) if isinstance(e, CheckpointSaved)]
    assert [e.step for e in saved] == [2, 4]
    assert saved[0].blocked_seconds < 0.2 <= saved[0].seconds
    assert saved[1].blocked_seconds == saved[1].seconds  # the last is waited for
