"""Preparation killed, and two at once, as real processes on one folder."""

import subprocess
import sys

import pytest

import data_corpus
from cnai.data import list_datasets, open_store, verify

pytestmark = pytest.mark.dist
CODE = """
import os, signal, sys
import data_corpus
from cnai.data import open_store, prepare
source, folder, deadly = sys.argv[1:]
def progress(stage, share):
    if f"{stage} {share:.1f}" == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
manifest = prepare(source, open_store(folder), options=data_corpus.OPTIONS, progress=progress)
print(manifest.digest)
"""


def start(source, folder, deadly="never"):
    return subprocess.Popen(
        [sys.executable, "-c", CODE, source, folder, deadly],
        stdout=subprocess.PIPE, text=True, env=data_corpus.child_environment(),
    )  # fmt: skip


@pytest.mark.parametrize("deadly", ["validation 1.0", "train 1.0", "trigram 1.0"])
def test_a_killed_preparation_is_no_dataset_and_is_finished_by_the_next(tmp_path, deadly):
    source, folder = data_corpus.write_corpus(tmp_path / "text"), str(tmp_path / "store")
    process = start(source, folder, deadly)
    process.communicate()
    assert process.returncode == -9
    store = open_store(folder)
    assert store.list() != []
    assert list_datasets(store) == []
    manifest = data_corpus.prepared(tmp_path / "text", store)
    assert verify(store, manifest) == []
    assert list_datasets(store) == [manifest]


def test_two_preparations_at_once_make_one_whole_dataset(tmp_path):
    source, folder = data_corpus.write_corpus(tmp_path / "text"), str(tmp_path / "store")
    both = [start(source, folder) for _ in range(2)]
    digests = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (manifest,) = list_datasets(open_store(folder))
    assert digests == {manifest.digest}
    assert verify(open_store(folder), manifest) == []
