import pytest

from cnai.core.errors import DataError
from cnai.data.file_store import FileStore


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


def test_what_was_put_comes_back(store):
    store.put("a/b.bin", b"\0\1")
    assert store.get("a/b.bin") == b"\0\1"


def test_a_put_replaces(store):
    store.put("a", b"old")
    store.put("a", b"new")
    assert store.get("a") == b"new"


def test_a_range_is_a_part(store):
    store.put("a", b"0123456789")
    assert store.get_range("a", 3, 4) == b"3456"


def test_a_range_past_the_end_is_refused(store):
    store.put("a", b"0123")
    with pytest.raises(DataError, match="ends before byte 7"):
        store.get_range("a", 3, 4)


@pytest.mark.parametrize("key", ["absent", "file/below"])
def test_an_absent_blob_is_named(store, key):
    store.put("file", b"")
    with pytest.raises(DataError, match=f"no blob `{key}`"):
        store.get(key)


def test_a_listing_is_sorted_and_filtered_by_prefix(store):
    for key in ("b/2", "b/1", "a", "bc"):
        store.put(key, b"xy")
    assert [(blob.key, blob.size_bytes) for blob in store.list("b")] == [
        ("b/1", 2), ("b/2", 2), ("bc", 2),
    ]  # fmt: skip


def test_a_prefix_may_end_inside_a_name(store):
    store.put("d/manifest.json", b"")
    store.put("d/tokens", b"")
    assert [blob.key for blob in store.list("d/man")] == ["d/manifest.json"]


def test_a_store_that_nobody_wrote_lists_nothing(store):
    assert store.list() == []


def test_an_unfinished_file_does_not_show(store, tmp_path):
    store.put("a", b"")
    (tmp_path / "store" / ".b.77.partial").write_bytes(b"torn")
    assert [blob.key for blob in store.list()] == ["a"]


def test_deleting_twice_is_no_error(store):
    store.put("a", b"")
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")


@pytest.mark.parametrize("key", ["../out", "/etc/passwd", "a/../../out"])
def test_a_key_cannot_leave_the_store(store, key):
    with pytest.raises(DataError, match="leaves the store"):
        store.put(key, b"")


def test_a_folder_that_cannot_be_made_is_a_data_error(tmp_path):
    (tmp_path / "store").write_text("a file in the way")
    with pytest.raises(DataError) as caught:
        FileStore(tmp_path / "store").put("a", b"")
    assert "data.store" in caught.value.hint


def test_a_full_disk_keeps_the_old_blob(small_disk):
    store = FileStore(small_disk)
    store.put("a", b"old")
    with pytest.raises(DataError, match="no space left"):
        store.put("a", b"x" * 2_000_000)
    assert store.get("a") == b"old"
    assert [blob.key for blob in store.list()] == ["a"]
