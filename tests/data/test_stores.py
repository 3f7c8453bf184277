import subprocess
import sys

import pytest

import data_corpus
from cnai.core.errors import DataError
from cnai.data import open_store


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def refusal(url, **options):
    with pytest.raises(DataError) as caught:
        open_store(url, **options)
    return caught.value


def test_a_bare_path_is_a_folder(tmp_path):
    open_store(str(tmp_path / "here")).put("a", b"x")
    assert (tmp_path / "here" / "a").read_bytes() == b"x"


def test_a_file_url_may_hold_an_escaped_space(tmp_path):
    open_store((tmp_path / "a b").as_uri()).put("a", b"x")
    assert (tmp_path / "a b" / "a").read_bytes() == b"x"


def test_the_url_of_a_folder_opens_it_again(tmp_path):
    store = open_store(str(tmp_path / "a b"))
    store.put("a", b"x")
    assert open_store(store.url).get("a") == b"x"


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/x").url == (tmp_path / "x").as_uri()


def test_two_stores_of_one_memory_name_see_the_same():
    open_store("memory://shared-name").put("a", b"x")
    assert open_store("memory://shared-name").get("a") == b"x"


def test_memory_stores_of_other_names_are_apart():
    open_store("memory://one-name").put("a", b"x")
    assert not open_store("memory://other-name").exists("a")


def test_opening_connects_to_nothing(monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    store = open_store("s3://bucket/some/prefix/", endpoint="http://127.0.0.1:1")
    assert store.url == "s3://bucket/some/prefix"


def test_an_endpoint_can_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert open_store("bos://bucket").url == "bos://bucket"


def test_bos_signs_for_the_region_of_its_host():
    store = open_store("bos://bucket/x", endpoint="https://s3.gz.bcebos.com")
    assert store._address.region == "gz"


def test_the_region_of_the_environment_wins(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    store = open_store("bos://bucket/x", endpoint="https://s3.gz.bcebos.com")
    assert store._address.region == "eu-north-1"


def test_bos_without_endpoint_names_one():
    assert "bcebos.com" in refusal("bos://bucket").hint


@pytest.mark.parametrize(("typo", "meant"), [("s4", "s3"), ("flie", "file"), ("memroy", "memory")])
def test_a_typo_in_the_scheme_gets_a_suggestion(typo, meant):
    error = refusal(f"{typo}://x/y")
    assert f"`{typo}://`" in error.message
    assert f"did you mean `{meant}://`" in error.hint


@pytest.mark.parametrize("url", ["s3:/bucket", "s3:bucket", "file:/folder"])
def test_a_missing_slash_is_not_taken_for_a_folder(url):
    assert "slashes" in refusal(url).message


def test_a_file_url_with_a_host_is_explained():
    assert "file:///data/x" in refusal("file://data/x").hint


def test_an_empty_store_is_refused():
    assert refusal("  ").exit_code == 4


def test_s3_needs_a_bucket():
    assert "bucket" in refusal("s3:///prefix").message


@pytest.mark.parametrize("endpoint", ["localhost:9000", "ftp://x", "http://"])
def test_an_endpoint_needs_a_scheme_and_a_host(endpoint):
    assert refusal("s3://b", endpoint=endpoint).where == "data.endpoint"


def test_credentials_in_a_url_are_refused_and_not_repeated():
    error = refusal("s3://AKIA1:hush@bucket")
    assert "hush" not in f"{error.message}{error.hint}{error.where}"


def test_credentials_in_an_endpoint_are_refused_and_not_repeated():
    error = refusal("s3://bucket", endpoint="http://me:hush@host")
    assert "hush" not in f"{error.message}{error.hint}{error.where}"


def test_importing_the_room_starts_no_thread_and_loads_no_torch():
    code = (
        "import os, sys, numpy\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "import cnai.data\n"
        "print(len(os.listdir('/proc/self/task')) - before, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=data_corpus.child_environment(),
    )  # fmt: skip
    assert done.stdout.split() == ["0", "False"]
