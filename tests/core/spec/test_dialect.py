import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.spec.dialect import Dumper, Loader


def read(text):
    return yaml.load(text, Loader)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-3", 3e-3),
        ("1e-05", 1e-5),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("10", 10),
        ("010", 10),
        ("10_000", 10_000),
        ("0x10", 16),
        ("0o17", 15),
        ("-3", -3),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_0", "1_0"),
        ("9" * 5000, "9" * 5000),
        ("1F1B", "1F1B"),
    ],
)
def test_a_scalar_is_what_it_looks_like(text, value):
    found = read(text)
    assert found == value
    assert type(found) is type(value)


def test_the_key_on_is_text():
    assert read("on: local") == {"on": "local"}


@given(st.text() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.booleans())
def test_what_is_written_reads_back_the_same(value):
    assert read(yaml.dump([value], Dumper=Dumper)) == [value]


@given(st.from_regex(r"[-+0-9._eExoOtrufalsn~]{1,8}", fullmatch=True))
def test_text_that_looks_like_a_number_stays_text(text):
    assert read(yaml.dump([text], Dumper=Dumper)) == [text]
