import dataclasses
import math

import numpy as np
import pytest

import data_corpus
from cnai.core.errors import DataError
from cnai.data import load_tokenizer, prepare, verify
from cnai.data.catalog import manifest_key
from cnai.data.file_store import FileStore
from cnai.data.memory_store import MemoryStore
from cnai.data.pack import unpack
from cnai.data.sources import read_documents
from cnai.data.split import split_documents
from cnai.data.tokenizer import train_tokenizer
from data_corpus import OPTIONS, CountingStore, silent, write_corpus


@pytest.fixture
def source(tmp_path):
    return write_corpus(tmp_path / "text")


def run(source, store, **changes):
    options = dataclasses.replace(OPTIONS, **changes)
    return prepare(source, store, options=options, progress=silent)


def stored_rows(store, blocks, manifest):
    pieces = [
        unpack(store.get(block.key), sequence=manifest.sequence, dtype=manifest.dtype)
        for block in blocks
    ]
    return np.concatenate(pieces)


def test_the_training_rows_spell_the_training_documents(source, memory):
    manifest = run(source, memory)
    tokenizer = load_tokenizer(memory.get(manifest.tokenizer), where="x")
    rows = stored_rows(memory, manifest.train, manifest)
    stream = [*rows[0].tolist(), *rows[1:, 1:].reshape(-1).tolist()]
    split = split_documents(list(read_documents(source)), OPTIONS.validation_fraction)
    text = "".join(document.text for document in split.train)
    assert text.startswith(tokenizer.decode(stream))
    assert stream[0] == tokenizer.end_token
    assert stream.count(tokenizer.end_token) in {len(split.train), len(split.train) + 1}


def test_the_manifest_counts_what_was_read(source, memory):
    manifest = run(source, memory)
    documents = list(read_documents(source))
    assert manifest.documents == 20
    assert manifest.source_bytes == sum(len(document.text.encode()) for document in documents)
    assert (manifest.source, manifest.sequence, manifest.dtype) == (source, 16, "uint16")
    assert manifest.vocab <= 300
    assert verify(memory, manifest) == []


def test_the_bytes_of_validation_rows_are_those_of_their_predicted_tokens(source, memory):
    manifest = run(source, memory)
    tokenizer = load_tokenizer(memory.get(manifest.tokenizer), where="x")
    rows = stored_rows(memory, manifest.validation, manifest)
    expected = [len(tokenizer.decode(row[1:].tolist()).encode()) for row in rows]
    assert list(manifest.validation_row_bytes) == expected


def test_the_trigram_floor_is_a_fair_number(source, memory):
    assert 0 < run(source, memory).trigram_bits_per_byte < math.log2(257)


def test_preparing_again_writes_nothing_and_gives_the_same(source, memory):
    first = run(source, memory)
    counting = CountingStore(memory)
    assert run(source, counting) == first
    assert counting.puts == []


def test_the_same_text_elsewhere_is_the_same_dataset(tmp_path, source, memory):
    other = write_corpus(tmp_path / "copy")
    assert run(other, memory) == run(source, memory)


def test_two_stores_get_the_same_blobs(source):
    one, two = MemoryStore("prepare-one"), MemoryStore("prepare-two")
    assert run(source, one) == run(source, two)
    assert [one.get(blob.key) for blob in one.list()] == [two.get(blob.key) for blob in two.list()]


@pytest.mark.parametrize(
    "change",
    [{"vocab": 280}, {"sequence": 8}, {"validation_fraction": 0.4}, {"block_rows": 3}],
)
def test_other_options_make_another_dataset_in_the_same_store(source, memory, change):
    assert run(source, memory).digest != run(source, memory, **change).digest
    assert len([b for b in memory.list() if b.key.endswith("manifest.json")]) == 2


def test_changed_text_makes_another_dataset(tmp_path, source, memory):
    first = run(source, memory)
    (tmp_path / "text" / "00.txt").write_text("changed\n")
    assert run(source, memory).digest != first.digest


def test_the_manifest_is_written_last(source, memory):
    counting = CountingStore(memory)
    run(source, counting)
    assert counting.puts[-1].endswith("/manifest.json")


def test_a_store_that_fails_midway_holds_no_dataset(source, memory, monkeypatch):
    counting = CountingStore(memory)

    def put(key, content):
        if "train" in key:
            raise DataError("the store is gone", hint="wait")
        memory.put(key, content)

    monkeypatch.setattr(counting, "put", put)
    with pytest.raises(DataError, match="the store is gone"):
        run(source, counting)
    assert not [b for b in memory.list() if b.key.endswith("manifest.json")]
    assert verify(memory, run(source, memory)) == []


@pytest.mark.parametrize("lost", ["train", "tokenizer"])
def test_a_lost_blob_is_made_again(source, memory, lost):
    manifest = run(source, memory)
    memory.delete(manifest.train[0].key if lost == "train" else manifest.tokenizer)
    assert run(source, memory) == manifest
    assert verify(memory, manifest) == []


def test_a_mending_that_fails_leaves_no_promise(source, memory, monkeypatch):
    manifest = run(source, memory)
    memory.delete(manifest.train[0].key)

    def put(key, content):
        raise DataError("the store is full", hint="free space")

    monkeypatch.setattr(memory, "put", put)
    with pytest.raises(DataError, match="the store is full"):
        run(source, memory)
    assert not memory.exists(manifest_key(manifest.digest))


def test_a_given_tokenizer_is_used(tmp_path, source, memory):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(train_tokenizer(["other words entirely"], 270).to_json())
    manifest = run(source, memory, tokenizer=path)
    assert memory.get(manifest.tokenizer) == path.read_bytes()
    assert manifest.vocab == 270 == load_tokenizer(path.read_bytes(), where="x").vocab


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path, source, memory):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(train_tokenizer(["many other words entirely " * 3], 275).to_json())
    with pytest.raises(DataError, match="has 275 tokens, the model only 260") as caught:
        run(source, memory, tokenizer=path, vocab=260)
    assert "275" in caught.value.hint


def test_too_little_text_for_one_row_is_told_with_numbers(source, memory):
    with pytest.raises(DataError, match="one row needs 100001") as caught:
        run(source, memory, sequence=100_000)
    assert "model.sequence" in caught.value.hint


def test_too_little_validation_text_points_to_the_fraction(source, memory):
    with pytest.raises(DataError, match="the validation part has") as caught:
        run(source, memory, sequence=1200, validation_fraction=0.01)
    assert "validation_fraction" in caught.value.hint


def test_too_little_validation_text_shows_before_training_text_is_packed(source, memory):
    with pytest.raises(DataError, match="the validation part"):
        run(source, memory, sequence=1200, validation_fraction=0.01)
    assert memory.list() == []


def test_progress_rises_within_each_stage(source, memory):
    seen = []
    prepare(source, memory, options=OPTIONS, progress=lambda *call: seen.append(call))
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert stages == ["read", "tokenizer", "validation", "train", "trigram"]
    for stage in stages:
        shares = [share for name, share in seen if name == stage]
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_a_large_vocabulary_is_stored_in_wide_tokens(source, tmp_path, memory):
    path = tmp_path / "tokenizer.json"
    small = train_tokenizer(["words"], 260).to_json().decode()
    wide = small.replace('"<|endoftext|>": 0', '"<|endoftext|>": 0,\n      "zzzz": 70000', 1)
    path.write_text(wide)
    assert run(source, memory, tokenizer=path, vocab=70_001).dtype == "uint32"


def test_a_folder_as_store_works_like_memory(source, tmp_path, memory):
    store = FileStore(tmp_path / "store")
    assert run(source, store) == run(source, memory)


def test_a_corpus_of_the_tests_prepares(tmp_path, memory):
    assert data_corpus.prepared(tmp_path / "x", memory).train_rows > 8
