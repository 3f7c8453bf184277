import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose.tail import TAIL_BYTES, read_tail


def test_a_missing_log_has_no_lines(tmp_path):
    assert read_tail(tmp_path / "none.log") == []


def test_lines_are_numbered_from_one(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\n")
    assert [(line.number, line.text) for line in read_tail(path)] == [(1, "one"), (2, "two")]


def test_the_end_of_a_long_log_keeps_its_true_numbers(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"line {number}\n" for number in range(1, 100_001)))
    lines = read_tail(path)
    assert lines[-1].text == f"line {lines[-1].number}" == "line 100000"
    assert all(line.text == f"line {line.number}" for line in lines)


def test_a_long_log_is_read_with_little_memory(tmp_path):
    path = tmp_path / "a.log"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"x" * 99 * 10_000 + b"\n")
    tracemalloc.start()
    read_tail(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * TAIL_BYTES


def test_control_characters_and_colours_are_taken_out(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"\x1b[31mError\x1b[0m\r\n")
    assert read_tail(path)[0].text == "[31mError[0m"


@given(content=st.binary(max_size=2000))
def test_any_bytes_can_be_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("logs") / "a.log"
    path.write_bytes(content)
    assert len(read_tail(path)) == len(content.split(b"\n")) - (content[-1:] in (b"\n", b""))


def test_only_the_newest_attempt_counts(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_text("=== attempt 0, process 7\nold\n=== attempt 1, process 9\nnew\n")
    assert [(line.number, line.text) for line in read_tail(log)] == [(4, "new")]
