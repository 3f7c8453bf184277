"""A real Prometheus, for as long as a test needs it."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

_SECONDS = 60.0


def binary(name):
    """Return the path of one of its programs; skip the test when it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on PATH")
    return found


def promtool(*words, content=None):
    """Run promtool and return its exit code and what it wrote."""
    done = subprocess.run(
        [binary("promtool"), *map(str, words)],
        input=content, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


class Prometheus:
    """One server that scrapes each second; close it, or use it as a context."""

    def __init__(self, folder, targets, rules=None):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [binary("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
                 f"--storage.tsdb.path={folder / 'tsdb'}",
                 f"--web.listen-address=127.0.0.1:{self.port}"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def get(self, path, **query):
        address = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            return None

    def ask(self, expression):
        """Return the series that an expression has now."""
        found = self.get("/api/v1/query", query=expression)
        return [] if found is None else found["result"]

    def firing(self):
        """Return the names of the alerts that fire."""
        found = self.get("/api/v1/alerts") or {"alerts": []}
        return {one["labels"]["alertname"] for one in found["alerts"] if one["state"] == "firing"}

    def until(self, condition):
        end = time.monotonic() + _SECONDS
        while not (found := condition()):
            assert time.monotonic() < end, "Prometheus never saw it"
            time.sleep(0.2)
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)
