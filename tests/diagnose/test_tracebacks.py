from hypothesis import given
from hypothesis import strategies as st

from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.tracebacks import find_tracebacks, last_chain
from diagnose_case import traceback


def lines(text):
    rows = enumerate(text.splitlines(), start=1)
    return [LogLine(file="a.log", number=number, text=row) for number, row in rows]


def test_a_traceback_ends_with_the_line_that_names_the_error():
    (found,) = find_tracebacks(lines("before\n" + traceback("ValueError: no") + "after\n"))
    assert (found.error.number, found.error.text) == (7, "ValueError: no")


def test_the_innermost_frame_outside_libraries_is_kept():
    (found,) = find_tracebacks(lines(traceback("ValueError: no")))
    assert found.frame == "/home/me/train.py:41"


def test_a_prefix_before_every_line_is_taken_off():
    text = "\n".join(f"[rank1]: {row}" for row in traceback("ValueError: no").splitlines())
    (found,) = find_tracebacks(lines(text))
    assert found.error.text == "ValueError: no"
    assert found.frame == "/home/me/train.py:41"


def test_a_chain_starts_at_its_first_cause():
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = traceback("A: old") + "gap\n" * 9 + traceback("B: first") + link + traceback("C: last")
    chain = last_chain(find_tracebacks(lines(text)))
    assert [one.error.text for one in chain] == ["B: first", "C: last"]


def test_a_traceback_that_was_cut_off_is_no_evidence():
    assert find_tracebacks(lines('Traceback (most recent call last):\n  File "a", line 1')) == []


@given(st.lists(st.sampled_from(["Traceback (most recent call last):", "  File", "E: x", ""])))
def test_any_order_of_lines_can_be_read(rows):
    last_chain(find_tracebacks(lines("\n".join(rows))))
