import contextlib
import os

import numpy as np

from cnai.train.standing import Page, PagedReader, page_of, read_page
from full_disk import tiny_disk


class Rows:
    def __init__(self, path):
        self._path = path
        self.seen = []

    def rows(self, step, first, count):
        self.seen.append(read_page(self._path).phase)
        return np.zeros((count, 3))

    def prefetch(self, step, first, count):
        self.seen.append("prefetch")

    def validation(self, limit=None):
        self.seen.append(read_page(self._path).phase)
        return np.zeros((1, 3))


def test_a_page_tells_process_step_and_phase(tmp_path):
    path = page_of(tmp_path, 3)
    page = Page(path, 7)
    page.enter("after", step=8)
    found = read_page(path)
    assert (found.pid, found.step, found.phase) == (os.getpid(), 8, "after")
    assert found.host


def test_each_phase_is_a_move(tmp_path):
    path = page_of(tmp_path, 0)
    page = Page(path, 0)
    before = read_page(path).moves
    page.enter("data")
    assert read_page(path).moves == before + 1


def test_a_page_that_is_not_there_tells_nothing(tmp_path):
    assert read_page(page_of(tmp_path, 0)) is None


def test_a_page_of_another_size_tells_nothing(tmp_path):
    path = page_of(tmp_path, 0)
    path.write_bytes(b"torn")
    assert read_page(path) is None


def test_a_torn_page_tells_nothing(tmp_path):
    path = page_of(tmp_path, 0)
    Page(path, 0)
    content = bytearray(path.read_bytes())
    content[0] += 1
    path.write_bytes(content)
    assert read_page(path) is None


def test_a_new_page_does_not_hurt_who_has_the_old_one(tmp_path):
    path = page_of(tmp_path, 0)
    old = Page(path, 1)
    Page(path, 2)
    old.enter("data", step=9)
    assert read_page(path).step == 2


def test_a_long_phase_is_cut(tmp_path):
    path = page_of(tmp_path, 0)
    Page(path, 0).enter("x" * 99)
    assert read_page(path).phase == "x" * 16


def test_a_reader_notes_when_the_rank_waits_for_data(tmp_path):
    path = page_of(tmp_path, 0)
    page, rows = Page(path, 0), Rows(path)
    reader = PagedReader(rows, page)
    assert reader.rows(0, 0, 2).shape == (2, 3)
    assert read_page(path).phase == "forward"
    reader.prefetch(1, 0, 2)
    reader.validation(4)
    assert rows.seen == ["data", "prefetch", "evaluate"]


def test_where_there_can_be_no_page_the_rank_goes_on(tmp_path):
    folder = tmp_path / "a file"
    folder.write_text("")
    path = page_of(folder, 0)
    Page(path, 0).enter("data", step=3)
    assert not path.exists()


def test_on_a_full_disk_the_rank_goes_on(tmp_path):
    with tiny_disk(tmp_path / "disk") as disk:
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        path = page_of(disk, 0)
        page = Page(path, 0)
        page.enter("data", step=3)
        assert read_page(path) is None
        del page
