"""`ai-cli serve` and `ai-cli monitor` as processes, asked by the clients that users have."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from chain_case import left_of, pids, reached, run_in, write_spec

pytestmark = [pytest.mark.slow, pytest.mark.dist]


def read(url):
    with urllib.request.urlopen(url, timeout=20) as reply:
        return reply.read().decode()


def samples(url):
    """Return the value of each metric by its name; of several label sets the last."""
    families = text_string_to_metric_families(read(url))
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture
def served(start, finished):
    """A running server of the finished run."""
    return start("serve", finished.root, "--port", "0", "--json")


def test_a_run_is_served_to_the_openai_client_and_ends_on_sigterm(served):
    url = served.url()
    with OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        (model,) = client.models.list().data
        asked = {"model": model.id, "temperature": 0, "max_tokens": 5}
        whole = client.completions.create(prompt="the cat", **asked)
        messages = [{"role": "user", "content": "the cat"}]
        chat = client.chat.completions.create(messages=messages, **asked)
        pieces = list(client.completions.create(prompt="the cat", stream=True, **asked))
    assert model.id == "model-int8"
    assert whole.usage.completion_tokens == 5
    assert chat.choices[0].message.role == "assistant"
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert "ok" in read(f"{url}/healthz")
    found = samples(f"{url}/metrics")
    assert found["cnai_serve_generated_tokens_total"] >= 10
    begin = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    assert served.wait(20) == 0, served.err
    assert time.monotonic() - begin < 10
    assert "Traceback" not in served.err
    assert left_of(served) == []


def test_ctrl_c_ends_a_server_well(served):
    served.url()
    served.press_ctrl_c()
    assert served.wait(20) == 0
    assert "Traceback" not in served.err


def test_a_run_is_served_where_it_tells(start, finished):
    server = start("serve", finished.artifacts / "model", "--port", "0")
    server.until(lambda: "next: " in server.err)
    assert "serving" in server.err
    assert "/v1/completions" in server.err
    assert server.out == ""
    server.press_ctrl_c()
    assert server.wait(20) == 0


def test_a_finished_run_is_shown_to_prometheus(start, finished):
    monitor = start("monitor", finished.root, "--port", "0", "--json")
    found = samples(f"{monitor.url()}metrics")
    summary = json.loads((finished.results / "train.json").read_text())["result"]
    assert found["cnai_train_loss"] == pytest.approx(summary["loss"], rel=1e-6)
    assert found["cnai_train_steps_total"] == 8
    monitor.process.send_signal(signal.SIGTERM)
    assert monitor.wait(20) == 0
    assert "Traceback" not in monitor.err


def test_the_chain_stays_up_to_serve_when_asked_to(start, finished):
    command = start("run", "run.yaml", "-y", "--keep", "--set", "serve.port=0")
    line = command.until(
        lambda: next((x for x in command.err.splitlines() if x.startswith("serving ")), None)
    )
    url = line.partition(" at ")[2].partition(";")[0]
    assert "model-int8" in read(f"{url}/v1/models")
    command.press_ctrl_c()
    assert command.wait(20) == 0, command.err
    assert "INT8 perplexity" in command.out


@pytest.mark.prometheus
def test_a_real_prometheus_scrapes_a_training(start, place):
    binary = shutil.which("prometheus")
    if binary is None:
        if os.environ.get("CNAI_REQUIRE_SERVICES") == "1":
            pytest.fail("no `prometheus` on the PATH")
        pytest.skip("no `prometheus` on the PATH")
    port, api_port = _free_port(), _free_port()
    write_spec(place, {"train.steps": 300, "monitor.prometheus_port": port})
    training = start("train", "run.yaml", "-y")
    run = run_in(place)
    training.until(lambda: reached(run, 3))
    held = list(pids(run).values())
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    (place / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        "scrape_configs:\n"
        f"  - {{job_name: cnai, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
    )
    server = subprocess.Popen(
        [binary, f"--config.file={place / 'prometheus.yml'}", f"--storage.tsdb.path={place / 'tsdb'}",
         f"--web.listen-address=127.0.0.1:{api_port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        query = f"http://127.0.0.1:{api_port}/api/v1/query?query=cnai_train_steps_total"
        found = training.until(lambda: _asked(query))
    finally:
        server.kill()
        server.wait()
    for pid in held:
        os.kill(pid, signal.SIGCONT)
    assert 3 <= float(found[0]["value"][1]) <= 300
    assert found[0]["metric"]["run"] == "tiny"
    assert training.wait() == 0, training.err


def _asked(query):
    try:
        return json.loads(read(query))["data"]["result"]
    except OSError:
        return None


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
