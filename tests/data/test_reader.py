import os
import subprocess
import sys

import numpy as np
import pytest

import data_corpus
from cnai.core.batches import BatchReader
from cnai.core.errors import DataError
from cnai.data import DatasetReader
from cnai.data.file_store import FileStore
from cnai.data.order import row_at
from cnai.data.pack import unpack
from data_corpus import CountingStore

BATCH = 6


@pytest.fixture
def store(tmp_path):
    return CountingStore(FileStore(tmp_path / "store"))


@pytest.fixture
def manifest(store, tmp_path):
    found = data_corpus.prepared(tmp_path / "text", store)
    store.gets.clear()
    return found


@pytest.fixture
def reader(store, manifest, tmp_path):
    return DatasetReader(store, manifest, tmp_path / "cache", batch=BATCH, seed=3)


def all_rows(store, manifest):
    pieces = [
        unpack(store.get(block.key), sequence=manifest.sequence, dtype=manifest.dtype)
        for block in manifest.train
    ]
    return np.concatenate(pieces).astype(np.int64)


def test_rows_are_those_that_the_order_names(reader, store, manifest):
    stored = all_rows(store, manifest)
    for step in (0, 1, 17, 1000):
        expected = [row_at(step * BATCH + n, manifest.train_rows, 3) for n in range(BATCH)]
        assert (reader.rows(step, 0, BATCH) == stored[expected]).all()


def test_rows_are_int64_of_the_promised_shape(reader, manifest):
    rows = reader.rows(0, 0, 2)
    assert (rows.dtype, rows.shape) == (np.int64, (2, manifest.sequence + 1))


def test_a_reader_is_a_batch_reader(reader):
    door: BatchReader = reader
    assert door.rows(0, 0, 1).shape[0] == 1


@pytest.mark.parametrize("cuts", [(1, 5), (2, 2, 2), (3, 3)])
def test_ranks_get_the_rows_of_the_whole_batch(reader, cuts):
    first, pieces = 0, []
    for count in cuts:
        pieces.append(reader.rows(5, first, count))
        first += count
    assert (np.concatenate(pieces) == reader.rows(5, 0, BATCH)).all()


def test_no_rows_are_an_empty_array(reader, manifest):
    assert reader.rows(0, 2, 0).shape == (0, manifest.sequence + 1)


@pytest.mark.parametrize("request_", [(-1, 0, 1), (0, -1, 1), (0, 0, BATCH + 1), (0, 5, 2)])
def test_rows_outside_a_step_are_refused(reader, request_):
    with pytest.raises(ValueError, match="a step has 6"):
        reader.rows(*request_)


def test_a_block_is_read_from_the_store_once(reader, store, manifest):
    for step in range(3 * manifest.train_rows // BATCH):
        reader.rows(step, 0, BATCH)
    assert sorted(store.gets) == sorted(block.key for block in manifest.train)


def test_nothing_is_read_before_it_is_needed(reader, store):
    assert store.gets == []
    reader.rows(0, 0, 1)
    assert len(store.gets) == 1


@pytest.mark.parametrize("memory_bytes", [0, 300])
def test_little_memory_gives_the_same_rows_and_no_more_fetches(
    reader, store, manifest, tmp_path, memory_bytes
):
    small = DatasetReader(
        store, manifest, tmp_path / "cache", batch=BATCH, seed=3, memory_bytes=memory_bytes
    )
    for step in range(2 * manifest.train_rows // BATCH):
        assert (small.rows(step, 0, BATCH) == reader.rows(step, 0, BATCH)).all()
    assert small._state.held_bytes <= memory_bytes
    assert len(store.gets) == len(manifest.train)


def test_a_cache_file_cut_after_its_check_is_fetched_again(store, manifest, tmp_path):
    cache = tmp_path / "cache"
    reader = DatasetReader(store, manifest, cache, batch=BATCH, seed=3, memory_bytes=0)
    before = reader.rows(0, 0, BATCH)
    for path in cache.glob("*.blk"):
        os.truncate(path, 5)
    assert (reader.rows(0, 0, BATCH) == before).all()


def test_a_cache_that_was_removed_while_reading_is_filled_again(store, manifest, tmp_path):
    cache = tmp_path / "cache"
    reader = DatasetReader(store, manifest, cache, batch=BATCH, seed=3, memory_bytes=0)
    before = reader.rows(0, 0, BATCH)
    for path in cache.iterdir():
        path.unlink()
    cache.rmdir()
    assert (reader.rows(0, 0, BATCH) == before).all()


def test_damaged_cache_files_never_reach_training(store, manifest, tmp_path, reader):
    rows = [reader.rows(step, 0, BATCH) for step in range(4)]
    for path in (tmp_path / "cache").glob("*.blk"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    again = DatasetReader(store, manifest, tmp_path / "cache", batch=BATCH, seed=3)
    assert all((again.rows(step, 0, BATCH) == rows[step]).all() for step in range(4))


def test_without_a_cache_folder_training_goes_on(store, manifest, tmp_path, reader):
    (tmp_path / "file").write_text("")
    bare = DatasetReader(store, manifest, tmp_path / "file", batch=BATCH, seed=3, memory_bytes=0)
    assert (bare.rows(2, 0, BATCH) == reader.rows(2, 0, BATCH)).all()


def test_a_full_disk_under_the_cache_does_not_stop_training(
    store, manifest, reader, small_disk, caplog
):
    (small_disk / "checkpoint").write_bytes(b"x" * 1_040_000)
    full = DatasetReader(store, manifest, small_disk / "cache", batch=BATCH, seed=3)
    for step in range(manifest.train_rows):
        assert (full.rows(step, 0, BATCH) == reader.rows(step, 0, BATCH)).all()
    assert "the block cache" in caplog.text


def test_a_corrupted_blob_is_named(store, manifest, reader):
    for block in manifest.train:
        store.put(block.key, b"\0" * block.size_bytes)
    with pytest.raises(DataError, match=r"blob `.*/train/\d+\.bin` is corrupted"):
        reader.rows(0, 0, 1)


def test_validation_rows_come_in_their_stored_order(reader, manifest):
    rows = reader.validation()
    assert rows.shape == (manifest.validation_rows, manifest.sequence + 1)
    assert rows.dtype == np.int64
    assert (reader.validation(5) == rows[:5]).all()
    assert len(reader.validation(0)) == 0
    assert len(reader.validation(10**6)) == len(rows)


def test_prefetched_rows_are_the_same(reader, store, manifest, tmp_path):
    plain = DatasetReader(store, manifest, tmp_path / "cache", batch=BATCH, seed=3)
    for step in range(20):
        reader.prefetch(step, 0, BATCH)
        assert (reader.rows(step, 0, BATCH) == plain.rows(step, 0, BATCH)).all()


def test_an_error_while_prefetching_shows_when_the_rows_are_asked_for(store, manifest, reader):
    for block in manifest.train:
        store.delete(block.key)
    reader.prefetch(0, 0, 2)
    with pytest.raises(DataError, match="no blob"):
        reader.rows(0, 0, 2)


def test_a_thread_starts_only_for_prefetching(reader):
    reader.rows(0, 0, 1)
    assert reader._state.thread is None
    reader.prefetch(1, 0, 1)
    assert reader._state.thread.daemon


def test_unclaimed_prefetches_do_not_pile_up(reader):
    for step in range(50):
        reader.prefetch(step, 0, 1)
    assert len(reader._state.prefetched) <= 4


def test_a_child_forked_after_use_reads_and_prefetches(reader):
    expected = reader.rows(3, 0, BATCH)
    reader.prefetch(4, 0, BATCH)

    def work():
        reader.prefetch(3, 0, BATCH)
        same = (reader.rows(3, 0, BATCH) == expected).all()
        reader.rows(4, 0, BATCH)
        return 0 if same else 1

    assert data_corpus.exit_code_of_child(work) == 0


CODE = """
import sys
from pathlib import Path
from cnai.data import DatasetReader, list_datasets, open_store
store = open_store(sys.argv[1])
(manifest,) = list_datasets(store)
reader = DatasetReader(store, manifest, Path(sys.argv[2]), batch=6, seed=3, memory_bytes=0)
total = sum(int(reader.rows(step, 0, 6).sum()) for step in range(manifest.train_rows))
print(total, reader.cache.fetched_blocks)
"""


@pytest.mark.dist
def test_a_reader_killed_while_it_fills_the_cache_harms_nobody(store, manifest, reader, tmp_path):
    code = CODE.replace("total =", "print('go', flush=True)\nwhile True: total =")
    command = [sys.executable, "-c", code, tmp_path / "store", tmp_path / "cache"]
    environment = data_corpus.child_environment()
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert victim.stdout.readline() == b"go\n"
    victim.kill()
    victim.communicate()
    order = [row_at(n, manifest.train_rows, 3) for n in range(BATCH)]
    assert (reader.rows(0, 0, BATCH) == all_rows(store, manifest)[order]).all()


@pytest.mark.dist
def test_two_processes_share_a_cache_and_fetch_each_block_once(store, manifest, reader, tmp_path):
    command = [sys.executable, "-c", CODE, tmp_path / "store", tmp_path / "shared"]
    both = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=data_corpus.child_environment()
        )
        for _ in range(2)
    ]
    results = [process.communicate()[0].split() for process in both]
    expected = sum(int(reader.rows(step, 0, 6).sum()) for step in range(manifest.train_rows))
    assert {int(total) for total, _ in results} == {expected}
    assert sum(int(fetched) for _, fetched in results) == len(manifest.train)


@pytest.fixture
def even(store, manifest, tmp_path):
    """A reader that deals the rows of a step out to three ranks, a row a micro-batch."""
    cache = tmp_path / "cache"
    return DatasetReader(store, manifest, cache, batch=BATCH, seed=3, groups=(2, 1))


@pytest.mark.parametrize("step", range(4))
def test_evened_rows_are_those_of_the_step(reader, even, step):
    found, expected = even.rows(step, 0, BATCH), reader.rows(step, 0, BATCH)
    assert sorted(found.tolist()) == sorted(expected.tolist())


def test_ranks_of_evened_rows_share_a_step(even):
    parts = [even.rows(1, first, 2) for first in range(0, BATCH, 2)]
    assert np.concatenate(parts).tolist() == even.rows(1, 0, BATCH).tolist()


def test_evened_rows_read_each_work_blob_once(even, store):
    for step in range(30):
        even.rows(step, 0, 2)
    work = [key for key in store.gets if key.endswith(".work")]
    assert work
    assert len(work) == len(set(work))


def test_a_work_blob_that_is_damaged_is_named(even, store, manifest):
    for block in manifest.train_work:
        store.put(block.key, b"x" * block.size_bytes)
    with pytest.raises(DataError, match=r"\.work` is corrupted"):
        even.rows(0, 0, 2)
