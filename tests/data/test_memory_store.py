import pytest

from cnai.core.errors import DataError


def test_what_was_put_comes_back(memory):
    memory.put("a", b"x")
    assert memory.get("a") == b"x"


def test_later_changes_of_a_buffer_do_not_reach_the_blob(memory):
    content = bytearray(b"x")
    memory.put("a", content)
    content[0] = 0
    assert memory.get("a") == b"x"


def test_an_absent_blob_is_named(memory):
    with pytest.raises(DataError, match="no blob `a`"):
        memory.get("a")


def test_a_range_past_the_end_is_refused(memory):
    memory.put("a", b"0123")
    with pytest.raises(DataError, match="ends before"):
        memory.get_range("a", 2, 3)


def test_a_listing_is_sorted(memory):
    for key in ("b", "a", "ab"):
        memory.put(key, b"")
    assert [blob.key for blob in memory.list("a")] == ["a", "ab"]


def test_deleting_twice_is_no_error(memory):
    memory.put("a", b"")
    memory.delete("a")
    memory.delete("a")
    assert not memory.exists("a")
