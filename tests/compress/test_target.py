import os
from pathlib import Path

import pytest

from cnai.compress import target as module
from cnai.compress.target import check_target, claimed
from cnai.core.errors import RunError, SpecError


def test_a_free_place_is_accepted(tmp_path: Path):
    check_target(tmp_path / "new" / "deep", needed_bytes=10, source=tmp_path / "old")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("target", ["model", "model/int8", ".", "model/../model"])
def test_a_target_that_is_holds_or_lies_in_the_source_is_refused(tmp_path: Path, target):
    (tmp_path / "model").mkdir()
    with pytest.raises(SpecError, match="overwrite its source"):
        check_target(tmp_path / target, needed_bytes=10, source=tmp_path / "model")


def test_a_link_to_the_source_is_refused(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with pytest.raises(SpecError, match="overwrite"):
        check_target(tmp_path / "link", needed_bytes=10, source=tmp_path / "model")


def test_a_file_is_not_replaced(tmp_path: Path):
    (tmp_path / "model_quant.pb").write_bytes(b"x")
    with pytest.raises(SpecError, match="is a file"):
        check_target(tmp_path / "model_quant.pb", needed_bytes=10)


def test_an_empty_folder_and_an_old_artifact_may_be_replaced(tmp_path: Path):
    check_target(tmp_path, needed_bytes=10)
    (tmp_path / "manifest.json").write_text("{}")
    check_target(tmp_path, needed_bytes=10)


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(RunError, match="cannot write in"):
        check_target(tmp_path / "file" / "model", needed_bytes=10)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_cannot_be_written(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot write in"):
        check_target(tmp_path / "model", needed_bytes=10)


def test_a_disk_that_is_too_small_says_both_sizes(tmp_path: Path):
    with pytest.raises(RunError, match=r"needs about .* TiB, but only") as caught:
        check_target(tmp_path / "model", needed_bytes=10**18)
    assert "free space" in caught.value.hint


def test_a_claimed_target_is_refused_to_others_until_it_is_let_go(tmp_path: Path):
    with claimed(tmp_path / "a"):
        with pytest.raises(RunError, match="another process"), claimed(tmp_path / "a"):
            pass
        with claimed(tmp_path / "b"):
            pass
    with claimed(tmp_path / "a"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_claim_is_let_go_after_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="x"), claimed(tmp_path / "a"):
        raise ValueError("x")
    with claimed(tmp_path / "a"):
        pass


def test_a_lock_left_by_a_killed_process_does_not_matter(tmp_path: Path):
    (tmp_path / ".a.lock").write_bytes(b"")
    with claimed(tmp_path / "a"):
        pass


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch):
    locked = []

    def flock(handle: int, how: int) -> None:
        if not locked:
            (tmp_path / ".a.lock").unlink()
        locked.append(handle)

    monkeypatch.setattr(module.fcntl, "flock", flock)
    with claimed(tmp_path / "a"):
        assert len(locked) == 2
        assert (tmp_path / ".a.lock").exists()
