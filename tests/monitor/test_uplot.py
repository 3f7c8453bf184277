import http.server
import io
import tarfile
import threading
from functools import partial

import pytest

from cnai.monitor import uplot


def package(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def integrity(content):
    return "sha512-" + uplot.base64.b64encode(uplot.hashlib.sha512(content).digest()).decode()


CONTENT = package(dict.fromkeys(uplot._FILES.values(), b"x") | {"package/evil": b"y"})


@pytest.fixture
def settings(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def registry(settings, monkeypatch):
    """A registry on this machine that has the package."""
    place = settings / "web" / "uplot" / "-"
    place.mkdir(parents=True)
    (place / f"uplot-{uplot.VERSION}.tgz").write_bytes(CONTENT)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = partial(Quiet, directory=settings / "web")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join()


def test_it_is_fetched_once_from_the_registry_of_the_user(registry, monkeypatch, tmp_path):
    monkeypatch.setattr(uplot, "INTEGRITY", integrity(CONTENT))
    folder = tmp_path / "vendor"
    assert uplot.fetch(folder)
    assert {file.name for file in folder.iterdir()} == set(uplot._FILES)
    assert not uplot.fetch(folder)


def test_another_content_than_the_pinned_one_is_refused(registry, tmp_path):
    with pytest.raises(uplot.ChartsError, match="another uPlot"):
        uplot.fetch(tmp_path / "vendor")
    assert not (tmp_path / "vendor").exists()


def test_a_registry_that_does_not_answer_is_told(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    with pytest.raises(uplot.ChartsError, match="cannot fetch uPlot"):
        uplot.fetch(tmp_path / "vendor")


def test_the_registry_of_npmrc_is_taken(settings):
    (settings / ".npmrc").write_text("//x/:_authToken=t\nregistry = https://mirror.example/npm\n")
    assert uplot.registry() == "https://mirror.example/npm/"


def test_the_environment_goes_before_npmrc(settings, monkeypatch):
    (settings / ".npmrc").write_text("registry=https://mirror.example/\n")
    monkeypatch.setenv("npm_config_registry", "https://other.example")
    assert uplot.registry() == "https://other.example/"


def test_an_address_of_another_kind_is_refused(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "file:///etc")
    with pytest.raises(uplot.ChartsError, match="no web address"):
        uplot.fetch(tmp_path / "vendor")


def test_a_missing_library_names_the_command_that_fetches_it(monkeypatch, tmp_path):
    monkeypatch.setattr(uplot, "FOLDER", tmp_path)
    assert "python -m cnai.monitor.uplot" in uplot.missing_charts()
