import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from starlette.applications import Starlette

from cnai.core.errors import RunError
from cnai.serve import Server
from cnai.serve.server import bound_socket


def app():
    return Starlette()


def test_port_zero_is_any_free_one_known_when_bound():
    server = Server(app(), port=0)
    assert server.port == 0
    with server:
        assert server.port > 0
        assert server.url == f"http://127.0.0.1:{server.port}"
        socket.create_connection(("127.0.0.1", server.port)).close()


def test_a_port_in_use_is_an_error_that_names_the_next_free_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RunError, match=f"port {port} is in use") as caught:
            Server(app(), port=port).start()
    assert caught.value.where == f"127.0.0.1:{port}"
    free = int(caught.value.hint.removeprefix("use port "))
    with Server(app(), port=free):
        pass


def test_the_socket_names_its_protocol_so_that_answers_are_not_held_back():
    with bound_socket("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_two_servers_do_not_share_a_port():
    with Server(app(), port=0) as first, pytest.raises(RunError, match="in use"):
        Server(app(), port=first.port).start()


def test_a_port_is_free_again_at_once():
    with Server(app(), port=0) as first:
        socket.create_connection(("127.0.0.1", first.port)).close()
    with Server(app(), port=first.port):
        pass


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "not a host"])
def test_a_host_that_is_not_this_machine_is_an_error(host):
    with pytest.raises(RunError, match="cannot listen") as caught:
        Server(app(), host=host, port=0).bind()
    assert "127.0.0.1" in caught.value.hint


def test_all_addresses_are_shown_as_one_that_a_client_can_use():
    assert Server(app(), host="0.0.0.0", port=80).url == "http://127.0.0.1:80"
    assert Server(app(), host="::", port=80).url == "http://[::1]:80"


def test_an_application_that_does_not_start_is_an_error(caplog):
    async def lifespan(_scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    with pytest.raises(RunError, match="did not start"):
        Server(lifespan, port=0).start()
    with pytest.raises(RunError, match="did not start"):
        Server(lifespan, port=0).run()


def test_run_tells_the_address_and_returns_when_stopped():
    server = Server(app(), port=0)
    told = []

    def ready(url):
        told.append(url)
        server.stop()

    assert server.run(ready) is None
    assert told == [server.url]


def test_a_signal_ends_run_and_is_returned_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    server = Server(app(), port=0)
    ended = server.run(lambda _url: signal.raise_signal(signal.SIGTERM))
    assert ended is signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_draining_begins_before_connections_are_waited_for():
    seen = []
    with Server(app(), port=0, grace_seconds=3, drain=seen.append):
        assert seen == []
    assert seen == [3]


def test_an_idle_keep_alive_connection_does_not_hold_up_the_end():
    server = Server(app(), port=0, grace_seconds=60)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 404")
        started = time.monotonic()
        server.stop()
    assert time.monotonic() - started < 10


def test_a_request_that_never_ends_is_cut_off_after_the_grace_period(caplog):
    entered = threading.Event()

    async def stuck(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        entered.set()
        await asyncio.Event().wait()

    server = Server(stuck, port=0, grace_seconds=0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert entered.wait(10)
        server.stop()
    assert "Cancel 1 running task" in caplog.text
    assert "Traceback" not in caplog.text


PROCESS = """
import sys, time
sys.path[:0] = {paths!r}
import servekit
from cnai.serve import Server, TextService, create_app

class Pause:
    def wait(self, _seconds):
        time.sleep(0.01)

engine = servekit.ScriptedEngine(("word ",), endless=True, gate=Pause())
service = TextService(engine)
app = create_app(service, chat_prompt=servekit.plain_prompt, max_tokens=10**9)
server = Server(app, port=0, grace_seconds={grace}, drain=service.drain)
ended = server.run(lambda url: print(server.port, flush=True))
print("ended by", ended.name, flush=True)
"""


def start_process(grace):
    tests = Path(__file__).parents[1]
    code = PROCESS.format(paths=[str(tests), str(tests.parent / "src")], grace=grace)
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def open_stream(port):
    body = b'{"model": "tiny", "prompt": "a", "stream": true}'
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    assert client.recv(4096).startswith(b"HTTP/1.1 200")
    return client


def read_all(client):
    received = b""
    while chunk := client.recv(65536):
        received += chunk
    return received


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_mid_stream_ends_the_stream_and_the_process_within_the_grace_period(number):
    process = start_process(grace=0.5)
    with process, open_stream(int(process.stdout.readline())) as client:
        process.send_signal(number)
        started = time.monotonic()
        received = read_all(client)
        output, errors = process.communicate(timeout=20)
    assert time.monotonic() - started < 10
    assert process.returncode == 0
    assert output == f"ended by {number.name}\n"
    assert errors == ""
    assert b"the server shut down" in received
    assert received.endswith(b"0\r\n\r\n")


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_the_grace_period():
    process = start_process(grace=300)
    with process, open_stream(int(process.stdout.readline())):
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0
