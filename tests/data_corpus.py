"""Small texts and options for the tests of the data room."""

import os
import signal
from pathlib import Path

import cnai
from cnai.core.blobs import BlobStore
from cnai.core.dataset import DatasetManifest
from cnai.data import PrepareOptions, prepare

OPTIONS = PrepareOptions(vocab=300, sequence=16, validation_fraction=0.2, block_rows=4)


def write_corpus(folder: Path, documents: int = 20) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        words = " ".join(f"word{number} fox{index % 7} jumps" for index in range(30))
        (folder / f"{number:02d}.txt").write_text(words + "\n")
    return str(folder)


def silent(stage: str, share: float) -> None:
    """Take progress and show nothing."""


def prepared(folder: Path, store: BlobStore, options: PrepareOptions = OPTIONS) -> DatasetManifest:
    return prepare(write_corpus(folder), store, options=options, progress=silent)


def child_environment() -> dict[str, str]:
    """Let a child process import what this one does."""
    places = [str(Path(cnai.__file__).parents[1]), str(Path(__file__).parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def exit_code_of_child(work) -> int:
    """Fork, run `work` in the child for at most ten seconds, and return what it returned."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            # The test runner's own handler would wait for a hanging call to return.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class CountingStore:
    """Passes all calls on and counts the reads of whole blobs."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.gets: list[str] = []
        self.puts: list[str] = []

    @property
    def url(self) -> str:
        return self._store.url

    def get(self, key):
        self.gets.append(key)
        return self._store.get(key)

    def put(self, key, content):
        self.puts.append(key)
        self._store.put(key, content)

    def get_range(self, key, start, length):
        return self._store.get_range(key, start, length)

    def exists(self, key):
        return self._store.exists(key)

    def list(self, prefix=""):
        return self._store.list(prefix)

    def delete(self, key):
        self._store.delete(key)
