import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.event_lines import event_line, parse_event
from cnai.core.events import KINDS, Event, RunEnded
from drawn import drawn

END = RunEnded(time_unix=1.5, outcome="done", step=3, seconds=2.0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@given(data=st.data())
def test_an_event_is_one_line_that_reads_back_the_same(kind, data):
    event = data.draw(drawn(kind))
    line = event_line(event)
    assert line.count(b"\n") == 1
    assert repr(parse_event(line, where="x")) == repr(event)


def test_a_line_names_its_kind_and_version():
    assert json.loads(event_line(END)) == {
        "kind": "RunEnded", "v": 1, "time_unix": 1.5, "outcome": "done", "step": 3,
        "seconds": 2.0, "reason": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"5",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"kind": "RunEnded", "v": 1',
        b'{"kind": "RunEnded", "v": 1}',
        b'{"kind": "FromTheFuture", "v": 1, "time_unix": 1.0}',
        event_line(END).replace(b'"v":1', b'"v":2'),
        event_line(END).replace(b'"v":1', b'"v":"1"'),
        event_line(END).replace(b'"RunEnded"', b'["RunEnded"]'),
        event_line(END).replace(b'"step":3', b'"step":"3"'),
        event_line(END)[:-10],
    ],
)
def test_a_line_that_cannot_be_read_is_passed_over(line):
    assert parse_event(line, where="x") is None


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_nothing(line):
    parse_event(line, where="x")


@given(st.integers(0, len(event_line(END)) - 3))
def test_a_line_cut_anywhere_is_nothing(length):
    assert parse_event(event_line(END)[:length], where="x") is None


def test_a_field_of_a_newer_writer_is_passed_over():
    line = event_line(END).replace(b'"step":3', b'"step":3,"later":[1]')
    assert parse_event(line, where="x") == END


def test_a_loss_that_is_no_number_survives():
    line = event_line(RunEnded(time_unix=1.0, outcome="failed", step=1, seconds=math.inf))
    assert parse_event(line, where="x").seconds == math.inf


def test_every_kind_of_event_is_in_the_table():
    here = [kind for kind in Event.__subclasses__() if kind.__module__ == Event.__module__]
    assert {kind.__name__ for kind in here} == set(KINDS)
