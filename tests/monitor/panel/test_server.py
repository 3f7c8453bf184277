import http.client
import json
import socket
import threading
import time

import pytest

from cnai.core.errors import RunError
from cnai.core.events import Finding
from cnai.core.runfolder import RunFolder
from cnai.monitor.panel import serve_panel
from monitor_case import started, step

TOKEN = "0123456789abcdef"


@pytest.fixture
def run(tmp_path):
    folder = RunFolder.create(tmp_path / "runs" / "demo")
    write(folder, started(), step(1), step(2))
    folder.rank_log(0).write_text("hello\nan error\n")
    return folder


def write(run, *events):
    with run.writer("rank-0") as writer:
        for event in events:
            writer.write(event)


@pytest.fixture
def server(run):
    with serve_panel(run, 0, poll_seconds=0.02) as one:
        yield one


def ask(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def read(server, path):
    status, _, body = ask(server, path)
    assert status == 200, body
    return json.loads(body)


class Stream:
    """Events of the live stream as they come."""

    def __init__(self, server, run="demo"):
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self._connection.request("GET", f"/api/live?run={run}")
        self._answer = self._connection.getresponse()

    def __iter__(self):
        kind = ""
        while line := self._answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)

    def close(self):
        self._answer.close()
        self._connection.close()


@pytest.fixture
def stream(server):
    one = Stream(server)
    yield one
    one.close()


def test_the_page_and_what_it_loads_are_there(server):
    for path in ("/", "/static/panel.js", "/static/panel.css", "/static/icon.svg"):
        status, _, body = ask(server, path)
        assert (status, len(body) > 100) == (200, True)


def test_the_page_loads_nothing_from_elsewhere(server):
    for path in ("/", "/static/panel.js", "/static/rooms.js", "/static/curves.js"):
        assert b"://" not in ask(server, path)[2]


def test_a_browser_is_told_to_run_nothing_else(server):
    assert "default-src 'self'" in ask(server, "/")[1]["content-security-policy"]


def test_metrics_are_answered_at_the_same_port(server):
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b'cnai_train_step{run="demo"} 2.0' in body


def test_runs_beside_it_can_be_looked_at(run, server):
    other = RunFolder.create(run.root.parent / "other")
    write(other, started(), step(1, loss=1.25))
    assert set(read(server, "/api/about")["runs"]) == {"demo", "other"}
    assert read(server, "/api/curve?run=other&curve=loss")["y"] == [1.25]


@pytest.mark.parametrize("path", ["/api/run?run=..", "/api/run?run=/etc", "/api/run?run=nothing"])
def test_what_is_no_run_is_not_found(server, path):
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/api/step?step=x", "/api/step?step=-1", "/api/curve?curve=rank"])
def test_nonsense_is_refused(server, path):
    status, _, body = ask(server, path)
    assert status == 400
    assert body.startswith((b"`step` is", b"there is no curve"))


def test_files_outside_are_not_given(server):
    assert ask(server, "/static/../app.py")[0] == 404
    assert ask(server, "/static/%2e%2e/app.py")[0] == 404


def test_logs_can_be_searched(server):
    assert read(server, "/api/logs?text=ERROR")["lines"] == [["rank-0", "an error"]]


def test_a_past_step_can_be_asked_for(server):
    assert read(server, "/api/step?step=1")["loss"] == pytest.approx(4.99)


def test_the_stream_begins_with_the_whole(stream):
    kind, plain = next(iter(stream))
    assert (kind, plain["curves"]["loss"]["x"]) == ("whole", [1, 2])


def test_a_new_step_and_a_finding_come_by_themselves(run, stream):
    events = iter(stream)
    next(events)
    write(run, step(3), Finding(time_unix=3.0, detector="d", severity="critical", message="look"))
    steps, findings = [], []
    for _, plain in events:
        steps += plain["curves"]["loss"]["x"]
        findings += [one["message"] for one in plain["findings"]]
        if findings and steps:
            break
    assert (steps, findings) == ([3], ["look"])


def test_the_end_does_not_wait_for_open_streams(run):
    server = serve_panel(run, 0)
    stream = Stream(server)
    next(iter(stream))
    begun = time.monotonic()
    server.close()
    assert time.monotonic() - begun < 1.9
    stream.close()


def test_a_name_that_only_points_here_is_refused(server):
    assert ask(server, "/api/run", Host="evil.example:80")[0] == 403


def test_a_foreign_port_of_this_machine_is_let_in(server):
    assert ask(server, "/", Host="localhost:9999")[0] == 200


def test_a_taken_port_says_so(run):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RunError, match="in use") as caught:
            serve_panel(run, other.getsockname()[1])
    assert caught.value.where == "--port"
    assert "`--port " in caught.value.hint


@pytest.fixture
def guarded(run):
    with serve_panel(run, 0, host="0.0.0.0", token=TOKEN) as one:
        yield one


@pytest.mark.parametrize("path", ["/", "/api/run", "/metrics", "/static/panel.js", "/api/live"])
def test_without_the_token_nothing_is_shown(guarded, path):
    assert ask(guarded, path)[0] == 401
    assert ask(guarded, path, Authorization="Bearer wrong-wrong-wrong")[0] == 401
    assert ask(guarded, f"{path}?token=wrong")[0] == 401


def test_prometheus_sends_the_token_in_a_header(guarded):
    assert ask(guarded, "/metrics", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_browser_gets_a_cookie_and_loses_the_token_from_its_address(guarded):
    status, headers, _ = ask(guarded, f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    assert "HttpOnly" in headers["set-cookie"]
    cookie = headers["set-cookie"].partition(";")[0]
    assert ask(guarded, "/", Cookie=cookie)[0] == 200


def test_many_lookers_and_a_writer_do_not_disturb_each_other(run, server):
    problems = []

    def look():
        try:
            for _ in range(5):
                read(server, "/api/run")
                ask(server, "/metrics")
        except (AssertionError, OSError, ValueError) as error:
            problems.append(error)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for one in lookers:
        one.start()
    for number in range(3, 40):
        write(run, step(number))
    for one in lookers:
        one.join()
    assert problems == []
