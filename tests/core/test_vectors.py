import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.errors import RunError
from cnai.core.vectors import (
    Columns,
    LayersMeasured,
    VectorFollower,
    VectorWriter,
    curve_of,
    read_vectors,
)
from house import run_python

COLUMNS = Columns((("gradient", ("a", "b")), ("dead", ("x",))))


def record(step, *values, columns=COLUMNS, attempt=0):
    return LayersMeasured(
        time_unix=1.0, attempt=attempt, step=step, columns=columns,
        values=np.array(values, dtype=np.float32),
    )  # fmt: skip


def written(path, *records):
    writer = VectorWriter(path)
    for one in records:
        writer.write(one)
    writer.close()
    return path


def test_what_is_written_is_read(tmp_path):
    path = written(tmp_path / "v", record(1, 1, 2, np.nan), record(2, 3, 4, 0.5))
    first, second = read_vectors(path)
    assert (first.step, first.group("gradient").tolist()) == (1, [1, 2])
    assert np.isnan(first.group("dead")).all()
    assert (second.group("dead").tolist(), second.names("dead")) == ([0.5], ("x",))


def test_a_group_that_is_not_there_is_empty():
    assert record(1, 1, 2, 3).group("other").tolist() == []


def test_a_follower_reads_what_is_new(tmp_path):
    follower = VectorFollower(tmp_path / "v")
    assert follower.read() == []
    writer = VectorWriter(tmp_path / "v")
    writer.write(record(1, 1, 2, 3))
    assert [one.step for one in follower.read()] == [1]
    writer.write(record(2, 1, 2, 3))
    assert [one.step for one in follower.read()] == [2]


def test_a_later_attempt_may_have_other_columns(tmp_path):
    path = written(tmp_path / "v", record(1, 1, 2, 3))
    written(path, record(2, 7, columns=Columns((("gradient", ("b",)),)), attempt=1))
    assert [one.group("gradient").tolist() for one in read_vectors(path)] == [[1, 2], [7]]


def test_a_step_done_again_counts_as_done_last(tmp_path):
    path = written(tmp_path / "v", record(1, 1, 2, 3), record(2, 1, 2, 3), record(2, 9, 9, 9))
    assert [one.values[0] for one in read_vectors(path)] == [1, 9]


def test_a_frame_that_is_still_being_written_is_waited_for(tmp_path):
    path = written(tmp_path / "v", record(1, 1, 2, 3), record(2, 4, 5, 6))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    follower = VectorFollower(path)
    assert [one.step for one in follower.read()] == [1]
    path.write_bytes(whole)
    assert [one.step for one in follower.read()] == [2]
    assert follower.skipped == 0


def test_a_torn_frame_does_not_hide_what_a_next_writer_adds(tmp_path):
    wide = Columns((("gradient", tuple(f"p{i}" for i in range(500))),))
    path = written(tmp_path / "v", record(1, 1, 2, 3), record(2, *range(500), columns=wide))
    path.write_bytes(path.read_bytes()[:-1000])
    written(path, record(2, 4, 5, 6))
    follower = VectorFollower(path)
    assert [(one.step, float(one.values[0])) for one in follower.read()] == [(1, 1), (2, 4)]
    assert follower.skipped == 1


@given(place=st.integers(0, 400), bits=st.integers(1, 255), cut=st.integers(0, 60))
def test_whatever_is_damaged_all_that_is_whole_is_read(tmp_path_factory, place, bits, cut):
    records = [record(step, step, step, step) for step in range(1, 8)]
    path = written(tmp_path_factory.mktemp("v") / "v", *records)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= bits
    path.write_bytes(content[: len(content) - cut])
    for one in VectorFollower(path).read():
        assert one.values.tolist() == [one.step] * 3


def test_a_curve_has_a_gap_where_a_member_is_not_there(tmp_path):
    other = Columns((("gradient", ("b",)),))
    found = curve_of([record(1, 1, 2, 3), record(2, 7, columns=other)], "gradient", "a")
    assert found[0] == 1
    assert np.isnan(found[1])


def test_a_full_disk_is_told(tmp_path):
    (tmp_path / "v").symlink_to("/dev/full")
    with pytest.raises(RunError, match="no space left"):
        written(tmp_path / "v", record(1, 1, 2, 3))


def test_importing_the_writer_is_quick_and_brings_no_torch():
    code = (
        "import sys, time, json; t = time.process_time(); import cnai.core.vectors;"
        "print(json.dumps([time.process_time() - t, 'torch' in sys.modules]))"
    )
    start = time.process_time()
    seconds, has_torch = eval(run_python(code).stdout.replace("false", "False"))
    assert not has_torch
    assert seconds < 1.0, start
