"""The servers beside a panel: real ones, wired to a real run."""

import json
import os
import signal
import socket
import time
import urllib.parse
import urllib.request

import psutil
import pytest

from cnai.core.runfolder import RunFolder
from monitor_case import started, step
from prometheus_case import binary

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]


@pytest.fixture
def run(place):
    folder = RunFolder.create(place / "runs" / "demo")
    with folder.writer("rank-0") as writer:
        for event in (started(), step(1), step(2)):
            writer.write(event)
    return folder


@pytest.fixture
def stack(start, run):
    """Start `ai-cli monitor --stack`; Prometheus and Alertmanager are installed for the tests."""
    binary("prometheus")
    binary("amtool")
    command = start("monitor", run.root, "--port", "0", "--stack", "--json")
    command.url()
    return command


def get(address):
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)["data"]


def until(found, seconds=60):
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return answer


def servers(command):
    return psutil.Process(command.process.pid).children(recursive=True)


def test_prometheus_scrapes_the_run_and_knows_where_alerts_go(stack):
    prometheus = stack.json["prometheus"]
    asked = urllib.parse.urlencode({"query": "cnai_train_step"})
    (found,) = until(lambda: get(f"{prometheus}/api/v1/query?{asked}")["result"])
    assert found["metric"]["run"] == "demo"
    assert found["value"][1] == "2"
    managers = until(lambda: get(f"{prometheus}/api/v1/alertmanagers")["activeAlertmanagers"])
    assert managers[0]["url"].startswith(stack.json["alertmanager"])


def test_what_is_not_installed_is_told(stack):
    assert "grafana" in stack.json or "grafana is not installed" in stack.err


def test_the_servers_end_with_the_panel(stack):
    children = servers(stack)
    assert len(children) >= 2
    stack.press_ctrl_c()
    assert stack.wait() == 0
    assert psutil.wait_procs(children, timeout=20)[1] == []


def test_the_servers_end_with_a_panel_that_was_killed(stack):
    children = servers(stack)
    os.kill(stack.process.pid, signal.SIGKILL)
    assert psutil.wait_procs(children, timeout=20)[1] == []


def test_a_port_in_use_is_left_alone(start, run):
    binary("prometheus")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 9090))
        other.listen()
        command = start("monitor", run.root, "--port", "0", "--stack", "--json")
        command.url()
        assert not command.json["prometheus"].endswith(":9090")


def test_without_prometheus_there_is_no_stack(ai_cli, run, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    result = ai_cli("monitor", run.root, "--port", "0", "--stack")
    assert result.code == 5
    assert "Prometheus is not installed" in result.err


def test_the_stack_is_not_for_other_machines(ai_cli, run):
    result = ai_cli("monitor", run.root, "--stack", "--host", "0.0.0.0")
    assert result.code == 2
    assert "this machine alone" in result.err
