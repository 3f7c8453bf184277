import pytest

from cnai.core.runfolder import RunFolder
from cnai.monitor.panel import logfile
from cnai.monitor.panel.logfile import find_lines, log_names


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "demo")


def lines(found):
    return [line for _, line in found.lines]


def test_ranks_come_in_order_of_their_numbers(run):
    for rank in (0, 2, 10):
        run.rank_log(rank).touch()
    assert log_names(run) == ["rank-0", "rank-2", "rank-10"]


def test_lines_with_the_text_come_oldest_first(run):
    run.rank_log(0).write_text("an Error\nfine\nanother error\n")
    assert lines(find_lines(run, None, "ERROR")) == ["an Error", "another error"]


def test_without_a_text_the_end_is_shown(run):
    run.rank_log(0).write_text("".join(f"{n}\n" for n in range(1000)))
    found = find_lines(run, "rank-0", "", most=3)
    assert lines(found) == ["997", "998", "999"]
    assert not found.complete


def test_a_line_over_two_blocks_is_whole(run, monkeypatch):
    monkeypatch.setattr(logfile, "_BLOCK_BYTES", 7)
    text = ["first line", "the second one", "", "last"]
    run.rank_log(0).write_text("\n".join(text))
    assert lines(find_lines(run, None, "")) == text


def test_an_empty_log_has_no_lines(run):
    run.rank_log(0).touch()
    assert find_lines(run, None, "").lines == ()


def test_only_so_much_of_a_log_is_searched(run, monkeypatch):
    monkeypatch.setattr(logfile, "_MOST_BYTES", 100)
    run.rank_log(0).write_text("needle\n" + "hay\n" * 100)
    assert find_lines(run, None, "needle") == logfile.LogLines(lines=(), complete=False)


@pytest.mark.parametrize("name", ["../secret", "rank-9", "/etc/passwd"])
def test_a_name_that_is_no_log_gives_nothing(run, name):
    (run.root / "secret.log").write_text("x")
    assert find_lines(run, name, "").lines == ()


def test_bytes_that_are_no_text_are_shown_somehow(run):
    run.rank_log(0).write_bytes(b"\xff\xfe error\n")
    assert len(find_lines(run, None, "error").lines) == 1
