import errno
import hashlib
import os
import subprocess
import sys

import pytest

from cnai.core.errors import DataError, RunError
from cnai.core.files import (
    folder_atomically,
    read_bytes,
    sha256_of,
    write_atomically,
    write_error,
)
from full_disk import tiny_disk


@pytest.fixture
def disk(tmp_path):
    with tiny_disk(tmp_path / "disk") as place:
        yield place


def fail_after(path):
    """Write a file, then break."""
    path.touch()
    raise ZeroDivisionError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_its_folders(tmp_path):
    write_atomically(tmp_path / "a" / "b", b"x")
    assert (tmp_path / "a" / "b").read_bytes() == b"x"


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path):
    write_atomically(tmp_path / "f", b"old")
    write_atomically(tmp_path / "f", b"new")
    assert names(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file(disk):
    write_atomically(disk / "f", b"old")
    with pytest.raises(RunError, match="no space left while writing `f`"):
        write_atomically(disk / "f", b"x" * 1_000_000)
    assert names(disk) == ["f"]
    assert (disk / "f").read_bytes() == b"old"


def test_a_folder_appears_only_when_it_is_whole(tmp_path):
    with folder_atomically(tmp_path / "step-1") as partial:
        (partial / "w").write_bytes(b"1")
        assert not (tmp_path / "step-1").exists()
    assert names(tmp_path) == ["step-1"]


def test_a_folder_that_failed_leaves_the_old_one(tmp_path):
    with folder_atomically(tmp_path / "f") as partial:
        (partial / "old").touch()
    with pytest.raises(ZeroDivisionError), folder_atomically(tmp_path / "f") as partial:
        fail_after(partial / "new")
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["old"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    for name in ("old", "new"):
        with folder_atomically(tmp_path / "f") as partial:
            (partial / name).touch()
    assert names(tmp_path / "f") == ["new"]


def test_what_a_killed_writer_left_is_swept_away(tmp_path):
    (tmp_path / ".f.partial").mkdir()
    (tmp_path / ".f.partial" / "junk").touch()
    with folder_atomically(tmp_path / "f") as partial:
        (partial / "w").touch()
    assert names(tmp_path / "f") == ["w"]


def test_a_full_disk_leaves_no_half_folder(disk):
    with pytest.raises(RunError, match="no space left"), folder_atomically(disk / "f") as partial:
        (partial / "w").write_bytes(b"x" * 1_000_000)
    assert names(disk) == []


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path):
    script = (
        "import itertools, sys; from pathlib import Path\n"
        "from cnai.core.files import write_atomically\n"
        "for i in itertools.count():\n"
        "    write_atomically(Path(sys.argv[1]), bytes([i % 256]) * 200_000)\n"
        "    if i == 3: print('going', flush=True)\n"
    )
    path = tmp_path / "f"
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, env=_environment()
        )
        writer.stdout.readline()
        writer.kill()
        writer.communicate()
        content = path.read_bytes()
        assert len(content) == 200_000
        assert len(set(content)) == 1


def _environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "Read-only"),
        (errno.EACCES, "Permission denied"),
        (errno.EIO, "Input/output"),
    ],
)
def test_the_reason_of_a_failed_write_is_told(tmp_path, number, words):
    error = write_error(OSError(number, os.strerror(number)), tmp_path / "f")
    assert words in error.message
    assert str(tmp_path) in error.where


def test_a_folder_in_the_place_of_a_file_is_an_error(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(RunError, match="cannot write `f`"):
        write_atomically(tmp_path / "f", b"x")
    assert names(tmp_path) == ["f"]


def test_a_missing_file_is_an_error_with_the_hint_of_the_caller(tmp_path):
    with pytest.raises(DataError, match="No such file") as caught:
        read_bytes(tmp_path / "f", hint="make it")
    assert caught.value.hint == "make it"


def test_the_checksum_is_sha256(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_of(tmp_path / "f") == hashlib.sha256(b"abc").hexdigest()
