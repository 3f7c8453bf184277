import pytest

import seaweed
from chain_case import curve, run_in, write_spec
from cnai.core.errors import DataError
from cnai.data import open_store

pytestmark = [pytest.mark.slow, pytest.mark.dist, pytest.mark.s3]


@pytest.fixture
def endpoint(tmp_path_factory, monkeypatch):
    """The address of an object store of the test's own."""
    binary = seaweed.weed_binary()
    if binary is None:
        pytest.skip("SeaweedFS is not installed")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweed.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweed.SECRET)
    server = seaweed.Seaweed(binary, tmp_path_factory.mktemp("seaweed"))
    try:
        server.wait_until(lambda: _accepts(server.endpoint))
        yield server
    finally:
        server.kill()


def _accepts(address):
    try:
        open_store("s3://tests/ready", endpoint=address).put("ready", b"yes")
    except DataError:
        return False
    return True


def test_a_run_trains_from_an_object_store_and_goes_on_from_its_cache(
    ai_cli, place, finished, endpoint
):
    store = {"name": "far", "data.store": "s3://tests/tiny", "data.endpoint": endpoint.endpoint}
    write_spec(place, store)
    ran = ai_cli("run", "run.yaml", "-y", "--json")
    assert ran.code == 0, ran.err
    far = run_in(place, "far")
    assert curve(far) == pytest.approx(curve(finished), abs=1e-5)
    assert not (far.root / "data").exists()
    blobs = open_store("s3://tests/tiny", endpoint=endpoint.endpoint).list()
    assert any("manifest.json" in blob.key for blob in blobs)
    cached = list((far.root / "cache").glob("*.blk"))
    assert cached
    endpoint.kill()
    measured = ai_cli("eval", "runs/far", "--json")
    assert measured.code == 0, measured.err
    assert measured.json == ran.json["evaluation"]
    told = ai_cli("run", "run.yaml", "-y")
    assert (told.code, told.err.count("error: "), "Traceback" in told.err) == (4, 1, False)
