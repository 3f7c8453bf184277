import pytest

import data_corpus
from cnai.core.errors import DataError
from cnai.data import discard, list_datasets, load_manifest, verify
from cnai.data.catalog import manifest_key


@pytest.fixture
def manifest(memory, tmp_path):
    return data_corpus.prepared(tmp_path / "text", memory)


def test_a_dataset_is_found_by_its_digest(memory, manifest):
    assert load_manifest(memory, manifest.digest) == manifest


def test_every_dataset_of_a_store_is_listed(memory, manifest, tmp_path):
    (tmp_path / "text" / "more.txt").write_text("more words")
    other = data_corpus.prepared(tmp_path / "text", memory)
    found = {one.digest for one in list_datasets(memory)}
    assert found == {manifest.digest, other.digest}


def test_an_unknown_digest_names_what_is_there(memory, manifest):
    with pytest.raises(DataError, match="no dataset `absent`") as caught:
        load_manifest(memory, "absent")
    assert manifest.digest in caught.value.hint


def test_a_damaged_manifest_is_refused(memory, manifest):
    memory.put(manifest_key(manifest.digest), b'{"digest": 3')
    with pytest.raises(DataError, match="not a valid DatasetManifest"):
        load_manifest(memory, manifest.digest)


def test_a_manifest_in_the_wrong_place_is_refused(memory, manifest):
    memory.put(manifest_key("copy"), memory.get(manifest_key(manifest.digest)))
    with pytest.raises(DataError, match="the manifest of `copy`"):
        load_manifest(memory, "copy")


def test_a_sound_dataset_has_no_problems(memory, manifest):
    assert verify(memory, manifest) == []


def test_each_broken_blob_is_a_problem(memory, manifest):
    lost, flipped, torn = manifest.train[0], manifest.train[1], manifest.validation[0]
    memory.delete(lost.key)
    content = memory.get(flipped.key)
    memory.put(flipped.key, content[:-1] + bytes([content[-1] ^ 1]))
    memory.put(torn.key, memory.get(torn.key)[:-2])
    memory.put(manifest.tokenizer, b"{}")
    problems = verify(memory, manifest)
    assert [problem.split("`")[1] for problem in problems] == [
        lost.key, flipped.key, torn.key, manifest.tokenizer,
    ]  # fmt: skip


def test_a_missing_tokenizer_is_a_problem(memory, manifest):
    memory.delete(manifest.tokenizer)
    assert verify(memory, manifest) == [f"blob `{manifest.tokenizer}` is missing"]


def test_a_discarded_dataset_leaves_nothing_and_spares_others(memory, manifest):
    memory.put("other/manifest.json", b"")
    discard(memory, manifest.digest)
    assert [blob.key for blob in memory.list()] == ["other/manifest.json"]
