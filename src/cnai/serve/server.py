"""The process side of serving: a port, signals, and an end that keeps its promises.

On SIGTERM or SIGINT the server stops accepting, lets running requests finish up to a grace period,
cuts off the rest (their streams end with an error event), and returns. A second signal ends it at
once. uvicorn alone would wait for open streams until its own timeout and then drop them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from cnai.core.errors import RunError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_START_SECONDS = 60.0
_TRIED_PORTS = 100


class Server:
    """Serves an application on one port, in the calling thread or in one of its own.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port to listen on; 0 = any free one, known after `bind`.
        grace_seconds: How long running requests may go on after a signal or `stop`.
        drain: Called with the grace period when the server begins to end; it is to make running
            requests end within it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        grace_seconds: float = 10.0,
        drain: Callable[[float], None] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="on",
            # A moment more than the grace period: first the requests end, then the connections.
            timeout_graceful_shutdown=math.ceil(grace_seconds) + 1,
            timeout_keep_alive=60,
        )
        self._uvicorn = _Uvicorn(config, grace_seconds, drain)

    @property
    def port(self) -> int:
        """The port; the real one after `bind`."""
        return self._port

    @property
    def url(self) -> str:
        """Where a client on this machine finds the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def bind(self) -> str:
        """Take the port and return the address; `run` and `start` do it when it was not done.

        Raises:
            RunError: The port is in use or may not be used, or the host is none of this machine.
        """
        if self._socket is None:
            self._socket = bound_socket(self._host, self._port)
            self._port = self._socket.getsockname()[1]
        return self.url

    def run(self, on_ready: Callable[[str], None] | None = None) -> signal.Signals | None:
        """Serve in this thread until a signal or `stop`.

        Args:
            on_ready: Called with the address when requests are taken.

        Returns:
            The signal that ended it; None when `stop` did. Signals are watched in the main thread
            only.

        Raises:
            RunError: The port cannot be had, or the application did not start.
        """
        self.bind()
        self._uvicorn.on_ready = (lambda: on_ready(self.url)) if on_ready else None
        self._serve()
        if not self._uvicorn.started:
            raise _not_started()
        return self._uvicorn.signal

    def start(self) -> str:
        """Serve in a thread of its own; return the address when requests are taken.

        Raises:
            RunError: The port cannot be had, or the application did not start.
        """
        self.bind()
        answered = threading.Event()
        self._uvicorn.on_ready = answered.set

        def serve() -> None:
            try:
                self._serve()
            finally:
                answered.set()

        self._thread = threading.Thread(target=serve, name="cnai-http", daemon=True)
        self._thread.start()
        if not answered.wait(_START_SECONDS) or not self._uvicorn.started:
            raise _not_started()
        return self.url

    def stop(self) -> None:
        """End the server as a signal would, from any thread; a server thread is waited for."""
        self._uvicorn.should_exit = True
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        assert self._socket is not None
        # uvicorn leaves with SystemExit when the application does not start; the callers say so.
        with contextlib.closing(self._socket), contextlib.suppress(SystemExit), _brief_log():
            self._uvicorn.run(sockets=[self._socket])


class _Uvicorn(uvicorn.Server):
    """uvicorn with our signals, and draining before it closes."""

    def __init__(
        self, config: uvicorn.Config, grace_seconds: float, drain: Callable[[float], None] | None
    ) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], None] | None = None
        self.signal: signal.Signals | None = None
        self._grace_seconds = grace_seconds
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_ready is not None:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._drain is not None:
            self._drain(0.0 if self.force_exit else self._grace_seconds)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again at the end; our caller is told by a value instead.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.force_exit = self.signal is not None
        self.signal = signal.Signals(sig)
        self.should_exit = True


@contextlib.contextmanager
def _brief_log() -> Iterator[None]:
    """Leave out a traceback for each request cut off at the end; their number is logged."""
    log = logging.getLogger("uvicorn.error")
    log.addFilter(_is_no_cancellation)
    try:
        yield
    finally:
        log.removeFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def bound_socket(host: str, port: int) -> socket.socket:
    """Take a port; the socket does not listen yet.

    Raises:
        RunError: The port is in use or may not be used, or the host is none of this machine.
    """
    try:
        return _try_bind(host, port)
    except OSError as error:
        raise _cannot_listen(error, host, port) from error


def _try_bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # With the protocol named, because asyncio switches Nagle's algorithm off only then; with it
    # on, every answer on a kept connection comes 40 ms late.
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _cannot_listen(error: OSError, host: str, port: int) -> RunError:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        free = _free_port(host, port)
        hint = f"use port {free}" if free else "use port 0, which takes any free one"
        return RunError(f"port {port} is in use", where=where, hint=hint)
    if error.errno == errno.EACCES:
        return RunError(
            f"port {port} needs rights that this user does not have",
            where=where,
            hint="use a port from 1024 on",
        )
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return RunError(
        f"cannot listen on `{host}`: {reason}",
        where=where,
        hint="use 127.0.0.1 for this machine only, or 0.0.0.0 for all of its addresses",
    )


def _free_port(host: str, taken: int) -> int | None:
    for port in range(taken + 1, min(taken + _TRIED_PORTS, 65536)):
        with contextlib.suppress(OSError):
            _try_bind(host, port).close()
            return port
    return None


def _not_started() -> RunError:
    return RunError("the server did not start", hint="see its log for the reason")
