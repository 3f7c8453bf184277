import json
import math
from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.artifact import Artifact, Quality
from cnai.core.dataset import DatasetManifest
from cnai.core.errors import DataError
from cnai.core.events import KINDS
from cnai.core.fleet import Allocation, Fleet
from cnai.core.layout import Layout, ParallelPlan
from cnai.core.records import convert, decode, encode, encode_pretty, to_dict
from cnai.core.shape import DecoderShape
from drawn import drawn

KINDS_OF_RECORD = [
    Layout, ParallelPlan, Fleet, Allocation, DecoderShape, Artifact, Quality, DatasetManifest,
    *KINDS.values(),
]  # fmt: skip


def same(a, b):
    """Compare as JSON text does: NaN is like NaN."""
    return repr(a) == repr(b)


@pytest.mark.parametrize("kind", KINDS_OF_RECORD)
@given(data=st.data())
def test_a_record_reads_back_the_same(kind, data):
    record = data.draw(drawn(kind))
    assert same(decode(kind, encode(record), where="x"), record)


@pytest.mark.parametrize("kind", KINDS_OF_RECORD)
@given(data=st.data())
def test_what_is_written_is_json_that_others_read(kind, data):
    text = encode(data.draw(drawn(kind)))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert b"\n" not in text


@dataclass(frozen=True)
class Point:
    """A small record."""

    x: float
    ys: tuple[float, ...] = ()
    label: str = ""
    count: int = 0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_hold_survive(number):
    point = decode(Point, encode(Point(number, (1.0, number))), where="x")
    assert same(point, Point(number, (1.0, number)))


def test_a_label_that_looks_like_one_stays_text():
    assert decode(Point, encode(Point(math.nan, label="nan")), where="x").label == "nan"


def test_a_number_in_quotes_is_refused():
    with pytest.raises(DataError):
        decode(Point, b'{"x": "1.5"}', where="x")


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"[]", b"\xff", b'{"x": null}', b'{"x": "abc"}', b"{}", b'{"x": 1e999}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_damaged_record_is_an_error_with_its_place(text):
    with pytest.raises(DataError, match="not a valid Point") as caught:
        decode(Point, text, where="plan.json")
    assert caught.value.where == "plan.json"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_a_data_error(content):
    try:
        decode(Point, content, where="x")
    except DataError as error:
        assert error.hint


def test_plain_values_become_a_record():
    assert convert(Point, {"x": 1.0, "ys": [2.0]}, where="x") == Point(1.0, (2.0,))


def test_plain_values_that_do_not_fit_are_an_error():
    with pytest.raises(DataError, match="count"):
        convert(Point, {"x": 1.0, "count": "many"}, where="x")


def test_a_record_as_plain_values_keeps_nan_a_number():
    assert math.isnan(to_dict(Point(math.nan))["x"])


def test_the_text_for_people_is_the_same_record():
    point = Point(1.5, (2.0,), "a", 3)
    pretty = encode_pretty(point)
    assert pretty.endswith(b"}\n")
    assert decode(Point, pretty, where="x") == point


def test_a_reader_passes_over_fields_of_a_newer_writer():
    assert decode(Point, b'{"x": 1.0, "later": true}', where="x") == Point(1.0)


def test_every_record_is_a_frozen_dataclass():
    assert [kind for kind in KINDS_OF_RECORD if not kind.__dataclass_params__.frozen] == []
    assert all(fields(kind) for kind in KINDS_OF_RECORD)
