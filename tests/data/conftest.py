import os
import subprocess

import pytest

import seaweed
from cnai.core.errors import DataError
from cnai.data import open_store
from cnai.data.memory_store import MemoryStore
from cnai.data.s3_store import Patience, S3Address, S3BlobStore


@pytest.fixture
def memory(request):
    """An empty store of the test's own."""
    return MemoryStore(request.node.nodeid)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("this user cannot mount a disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def credentials(monkeypatch):
    """The server's credentials in the environment, and nothing else of AWS."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.SECRET)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory):
    """The server that all tests of a session share."""
    yield from _serve(tmp_path_factory.mktemp("seaweed"))


@pytest.fixture
def mortal_store(tmp_path_factory, credentials):
    """A server that the test may kill."""
    yield from _serve(tmp_path_factory.mktemp("mortal"))


@pytest.fixture
def bucket(object_store, credentials, request):
    """An empty prefix in a bucket of the shared server."""
    name = f"{abs(hash(request.node.nodeid)):x}"
    return open_store(f"s3://tests/{name}", endpoint=object_store.endpoint)


def _serve(folder):
    binary = seaweed.weed_binary()
    if binary is None:
        pytest.skip("SeaweedFS is not installed")
    server = seaweed.Seaweed(binary, folder)
    try:
        server.wait_until(lambda: _accepts(server.endpoint))
        yield server
    finally:
        server.kill()


def _accepts(endpoint):
    """Write a blob, which makes the bucket too."""
    address = S3Address(
        scheme="s3", bucket="tests", prefix="", region="us-east-1", endpoint=endpoint
    )
    store = S3BlobStore(address, Patience(retries=0, request_seconds=5, connect_seconds=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", seaweed.KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.SECRET)
        try:
            store.put("ready", b"yes")
            return store.get("ready") == b"yes"
        except DataError:
            return False
