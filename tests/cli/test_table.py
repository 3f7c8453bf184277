import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cnai.cli.table import table_picture

COLUMNS = ("key", "default", "meaning")
ROW = ("train.learning_rate", "0.003", "Peak learning rate of the whole run, from 0 to 10")


def drawn(width, columns=COLUMNS, rows=(ROW,), ruled=True):
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(table_picture(columns, rows, width=width, ruled=ruled))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_with_room_the_names_are_ruled():
    assert any("───" in line for line in drawn(120))


def test_the_rule_goes_before_a_cell_is_folded():
    width = sum(map(len, ROW)) + 2 + 2 + len("default") - len("0.003")
    lines = drawn(width)
    assert len(lines) == 2
    assert lines[1].endswith(ROW[-1])


def test_then_the_text_of_the_last_column_is_folded():
    lines = drawn(60)
    assert lines[0].split() == list(COLUMNS)
    assert len(lines) == 3


def test_a_narrow_terminal_gets_a_line_for_each_value():
    lines = drawn(40, rows=(ROW, ROW))
    assert lines[0] == "key      train.learning_rate"
    assert lines[1] == "default  0.003"
    assert lines.count("") == 1


@given(width=st.integers(30, 150))
def test_at_no_width_a_name_or_number_is_broken(width):
    words = {word for line in drawn(width) for word in line.split()}
    assert {*COLUMNS, *ROW[:-1]} <= words


@pytest.mark.parametrize("width", [40, 200])
def test_a_table_without_rows_is_drawn(width):
    drawn(width, rows=())
