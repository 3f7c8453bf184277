import errno
import logging
import os
import threading

import pytest

from cnai.core.dataset import Block
from cnai.core.errors import DataError
from cnai.data import block_cache
from cnai.data.block_cache import BlockCache
from cnai.data.memory_store import MemoryStore
from cnai.data.pack import checksum
from data_corpus import CountingStore


@pytest.fixture
def store(memory):
    return CountingStore(memory)


def stored(store, key="d/train/0", content=b"some rows"):
    store.put(key, content)
    return Block(key=key, rows=1, size_bytes=len(content), checksum=checksum(content))


def test_a_block_is_fetched_once_for_all_caches_of_a_folder(store, tmp_path):
    block = stored(store)
    first = BlockCache(store, tmp_path / "c").block(block)
    second = BlockCache(store, tmp_path / "c").block(block)
    assert first == second == b"some rows"
    assert store.gets == [block.key]


@pytest.mark.parametrize("damage", [b"", b"some row", b"some rowz", b"some rows and more"])
def test_a_damaged_file_is_fetched_again_and_mended(store, tmp_path, damage, caplog):
    block = stored(store)
    cache = BlockCache(store, tmp_path)
    cache.block(block)
    (tmp_path / f"{block.checksum}.blk").write_bytes(damage)
    assert cache.block(block) == b"some rows"
    assert "damaged" in caplog.text
    assert (tmp_path / f"{block.checksum}.blk").read_bytes() == b"some rows"


def test_a_corrupted_blob_is_named_and_not_cached(store, tmp_path):
    block = stored(store)
    store.put(block.key, b"some r0ws")
    with pytest.raises(DataError, match=f"blob `{block.key}` is corrupted"):
        BlockCache(store, tmp_path).block(block)
    assert list(tmp_path.glob("*.blk")) == []


def test_a_missing_blob_is_named(store, tmp_path):
    block = stored(store)
    store.delete(block.key)
    with pytest.raises(DataError, match=f"no blob `{block.key}`"):
        BlockCache(store, tmp_path).block(block)


def test_a_part_is_read_from_the_file(store, tmp_path):
    block = stored(store)
    cache = BlockCache(store, tmp_path)
    assert cache.part(block, 5, 4) is None
    cache.block(block)
    assert cache.part(block, 5, 4) == b"rows"


def test_a_part_of_a_file_that_was_cut_is_not_there(store, tmp_path):
    block = stored(store)
    cache = BlockCache(store, tmp_path)
    cache.block(block)
    os.truncate(tmp_path / f"{block.checksum}.blk", 7)
    assert cache.part(block, 5, 4) is None


def test_a_folder_that_cannot_be_made_turns_caching_off_with_one_warning(store, tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = BlockCache(store, tmp_path / "file")
    block = stored(store)
    assert cache.block(block) == cache.block(block) == b"some rows"
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_a_write_that_fails_turns_caching_off(store, tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    cache = BlockCache(store, tmp_path)
    assert cache.block(stored(store)) == b"some rows"
    assert "No space left" in caplog.text
    assert [path for path in tmp_path.iterdir() if not path.name.startswith(".lock")] == []


def test_old_leftovers_of_killed_processes_are_removed_and_new_ones_left(store, tmp_path):
    old, new = tmp_path / ".tmpold.partial", tmp_path / ".tmpnew.partial"
    old.write_bytes(b"torn")
    new.write_bytes(b"being written")
    os.utime(old, (0, 0))
    BlockCache(store, tmp_path).block(stored(store))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_nearly_full_disk_is_left_alone(store, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(block_cache, "_spare_bytes", lambda _: 0)
    assert BlockCache(store, tmp_path).block(stored(store)) == b"some rows"
    assert "nearly full" in caplog.text
    assert list(tmp_path.glob("*.blk")) == []


def test_a_small_disk_is_filled_up_and_no_further(store, small_disk, caplog):
    cache = BlockCache(store, small_disk)
    for number in range(12):
        content = bytes([number]) * 200_000
        assert cache.block(stored(store, f"d/{number}", content)) == content
    assert 2 <= len(list(small_disk.glob("*.blk"))) <= 4
    assert "the block cache" in caplog.text


def test_threads_with_caches_of_one_folder_fetch_a_block_once(tmp_path):
    class SlowStore(CountingStore):
        def get(self, key):
            entered.set()
            go_on.wait(10)
            return super().get(key)

    entered, go_on = threading.Event(), threading.Event()
    store = SlowStore(MemoryStore("slow"))
    block = stored(store)
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(BlockCache(store, tmp_path).block(block)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    go_on.set()
    for thread in threads:
        thread.join()
    assert got == [b"some rows"] * 4
    assert store.gets == [block.key]
