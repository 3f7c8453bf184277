import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnai.core.units import format_bytes, format_count, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("80 GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("80g", 80 * 10**9),
        ("80Gi", 80 * 2**30),
        ("1.5 KiB", 1536),
        (" 7 ", 7),
        ("7 B", 7),
        (7, 7),
        ("9007199254740993", 9007199254740993),
        ("2 PiB", 2 * 2**50),
    ],
)
def test_a_size_is_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "lots", "80 XB", "-3 GB", "1e9", "8 0", "1.2.3 GB", "GB", "\u0663 GB"]
)
def test_a_text_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is no size"):
        parse_bytes(text)


@given(st.integers(0, 2**50))
def test_a_written_size_reads_back_nearly_the_same(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.06)


@given(st.integers(0, 2**20), st.sampled_from(["", "K", "M", "G", "T", "P"]))
def test_binary_units_are_powers_of_1024(number, prefix):
    suffix = f"{prefix}iB" if prefix else "B"
    assert parse_bytes(f"{number} {suffix}") == number * 1024 ** " KMGTP".index(prefix or " ")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (80 * 2**30, "80.0 GiB")]
)
def test_a_size_is_written(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(("count", "text"), [(7, "7"), (3_200_000, "3.2 M"), (1e11, "100.0 B")])
def test_a_count_is_written(count, text):
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0004, "0.4 ms"),
        (0.0052, "5 ms"),
        (0.52, "520 ms"),
        (4.2, "4.2 s"),
        (59.96, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_a_duration_is_written(seconds, text):
    assert format_seconds(seconds) == text
