"""The S3 store, preparation and reading against a real object store."""

import time

import numpy as np
import pytest

import data_corpus
from cnai.core.errors import DataError
from cnai.data import DatasetReader, list_datasets, open_store, verify
from cnai.data.s3_store import Patience, S3Address, S3BlobStore

pytestmark = pytest.mark.s3


def test_what_was_put_comes_back(bucket):
    bucket.put("a/b", b"\0\1")
    assert bucket.get("a/b") == b"\0\1"


def test_an_empty_blob_comes_back(bucket):
    bucket.put("empty", b"")
    assert bucket.get("empty") == b""


def test_a_blob_of_many_megabytes_comes_back(bucket):
    content = np.random.default_rng(0).bytes(20 * 2**20)
    bucket.put("big", content)
    assert bucket.get("big") == content


def test_a_range_is_a_part(bucket):
    bucket.put("a", b"0123456789")
    assert bucket.get_range("a", 3, 4) == b"3456"


@pytest.mark.parametrize("start", [3, 30])
def test_a_range_past_the_end_is_refused(bucket, start):
    bucket.put("a", b"0123")
    with pytest.raises(DataError, match="ends before"):
        bucket.get_range("a", start, 4)


def test_a_listing_is_sorted_and_filtered_like_that_of_a_folder(bucket):
    for key in ("b/2", "b/1", "a", "bc"):
        bucket.put(key, b"xy")
    assert [blob.key for blob in bucket.list("b")] == ["b/1", "b/2", "bc"]
    assert [blob.size_bytes for blob in bucket.list()] == [2, 2, 2, 2]


def test_deleting_twice_is_no_error(bucket):
    bucket.put("a", b"")
    bucket.delete("a")
    bucket.delete("a")
    assert not bucket.exists("a")


def test_an_absent_blob_is_named(bucket):
    with pytest.raises(DataError, match="no blob `a`"):
        bucket.get("a")


@pytest.mark.parametrize("call", [lambda store: store.get("a"), lambda store: store.list()])
def test_a_missing_bucket_is_named(object_store, credentials, call):
    store = open_store("s3://nowhere-to-be-seen", endpoint=object_store.endpoint)
    with pytest.raises(DataError, match="no bucket `nowhere-to-be-seen`"):
        call(store)


@pytest.mark.parametrize(
    ("name", "code"),
    [("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"), ("AWS_ACCESS_KEY_ID", "Invalid")],
)
def test_wrong_credentials_are_refused_and_not_shown(
    object_store, credentials, monkeypatch, name, code
):
    monkeypatch.setenv(name, "totally-wrong")
    with pytest.raises(DataError, match=code) as caught:
        open_store("s3://tests/x", endpoint=object_store.endpoint).put("a", b"")
    assert "totally-wrong" not in str(caught.value.to_dict())


def test_a_dataset_is_prepared_and_read_through_the_store(bucket, tmp_path):
    manifest = data_corpus.prepared(tmp_path / "text", bucket)
    reader = DatasetReader(bucket, manifest, tmp_path / "cache", batch=4, seed=1)
    assert verify(bucket, manifest) == []
    assert list_datasets(bucket) == [manifest]
    assert reader.rows(3, 0, 4).shape == (4, 17)
    assert len(reader.validation()) == manifest.validation_rows


def test_the_store_gives_the_same_rows_as_a_folder(bucket, memory, tmp_path):
    remote = data_corpus.prepared(tmp_path / "text", bucket)
    local = data_corpus.prepared(tmp_path / "text", memory)
    assert remote == local


def test_a_forked_child_is_told_at_once_instead_of_hanging(bucket):
    bucket.put("a", b"x")

    def work():
        try:
            bucket.get("a")
        except DataError as error:
            return 7 if "forked" in error.message else 1
        return 2

    assert data_corpus.exit_code_of_child(work) == 7


@pytest.mark.slow
def test_a_server_killed_while_reading_ends_in_a_clear_error_soon(mortal_store, tmp_path):
    address = S3Address(
        scheme="s3", bucket="tests", prefix="x", region="us-east-1", endpoint=mortal_store.endpoint
    )
    store = S3BlobStore(address, Patience(retries=3, retry_seconds=5, request_seconds=5))
    manifest = data_corpus.prepared(tmp_path / "text", store)
    reader = DatasetReader(store, manifest, tmp_path / "cache", batch=1, seed=0)
    reader.rows(0, 0, 1)
    mortal_store.kill()
    start = time.monotonic()
    with pytest.raises(DataError, match="cannot be reached"):
        _ = [reader.rows(step, 0, 1) for step in range(manifest.train_rows)]
    assert time.monotonic() - start < 20


@pytest.mark.slow
def test_cached_blocks_outlive_the_server(mortal_store, tmp_path):
    store = open_store("s3://tests/y", endpoint=mortal_store.endpoint)
    manifest = data_corpus.prepared(tmp_path / "text", store)
    rows = manifest.train_rows
    before = DatasetReader(store, manifest, tmp_path / "c", batch=rows, seed=0).rows(0, 0, rows)
    mortal_store.kill()
    after = DatasetReader(store, manifest, tmp_path / "c", batch=rows, seed=0).rows(0, 0, rows)
    assert (before == after).all()
