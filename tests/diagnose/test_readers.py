import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnai.core.errors import DataError
from cnai.diagnose import Verdict, diagnose_logs
from cnai.diagnose.lines import LONGEST, clean, read_line
from cnai.diagnose.readers import read_lines, stream_name

FULL = "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("logs/rank-3.log", "3"),
        ("rank_12.txt.gz", "12"),
        ("attempt_0/3/stderr.log", "3"),
        ("dmesg-node-b.txt", "dmesg:node-b"),
        ("slurm-4711.out", "slurm:4711"),
        ("events.txt", "events"),
        ("train.log", "train"),
    ],
)
def test_a_file_names_its_log(path, name):
    assert stream_name(Path(path)) == name


def test_a_folder_of_ranks_is_read(tmp_path):
    (tmp_path / "rank-0.log").write_text("Connection reset by peer\n")
    (tmp_path / "rank-1.log").write_text("step 1 loss 2.0\n" + FULL)
    found = diagnose_logs([tmp_path])
    assert (found.fault, found.root_rank, found.root_line.number) == ("disk_full", 1, 3)
    assert found.root_line.file == str(tmp_path / "rank-1.log")
    assert found.cascade_ranks == (0,)


def test_a_compressed_log_is_read(tmp_path):
    path = tmp_path / "rank-1.log.gz"
    path.write_bytes(gzip.compress(FULL.encode()))
    assert diagnose_logs([path]).fault == "disk_full"


def test_a_compressed_log_that_is_cut_off_counts_as_far_as_it_goes(tmp_path):
    packed = gzip.compress((FULL + os.urandom(20_000).hex()).encode())
    path = tmp_path / "rank-1.log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert diagnose_logs([path]).fault == "disk_full"


def test_stdin_is_read(monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(FULL.encode()))
    monkeypatch.setattr("sys.stdin", pipe)
    assert diagnose_logs([Path("-")]).fault == "disk_full"


def test_a_healthy_log_is_healthy(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert diagnose_logs([path]).verdict is Verdict.HEALTHY


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match=r"no run at .*gone\.log"):
        diagnose_logs([tmp_path / "gone.log"])


def test_a_folder_without_logs_is_told(tmp_path):
    with pytest.raises(DataError, match="no logs in"):
        diagnose_logs([tmp_path])


def test_a_line_of_any_length_is_cut(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("x" * 1_000_000 + "\nnext\n")
    lines = list(read_lines(path))
    assert (len(lines), lines[1]) == (2, "next")
    assert len(clean(lines[0])) == LONGEST


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_can_be_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("junk") / "rank-0.log"
    path.write_bytes(content)
    assert diagnose_logs([path]).verdict in set(Verdict)


@given(st.text(max_size=200))
def test_a_line_only_loses_what_stands_before_it(raw):
    line = read_line(raw, stream="a", number=1)
    assert line.raw.endswith(line.text)
