"""The panel on a port, in a thread of its own.

uvicorn waits at its end for open streams, and the panel's streams never end by themselves; so they
are told first.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Self

import uvicorn

from cnai.core.clock import Clock
from cnai.core.errors import RunError
from cnai.core.runfolder import RunFolder
from cnai.monitor.exporter import cannot_listen
from cnai.monitor.panel.access import Access
from cnai.monitor.panel.app import POLL_SECONDS, PanelApp, create_app

_START_SECONDS = 60.0


class PanelServer:
    """A panel that answers; close it, or use it as a context."""

    def __init__(self, run: RunFolder, sock: socket.socket, app: PanelApp) -> None:
        self._run = run
        self._socket = sock
        self.host, self.port = sock.getsockname()[:2]
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, ws="none", lifespan="off",
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        self._server = _Server(config, app)
        self._thread = threading.Thread(target=self._serve, name="cnai-panel", daemon=True)
        self._thread.start()
        threading.Thread(target=app.preload, name="cnai-panel-reader", daemon=True).start()
        if not self._server.answers.wait(_START_SECONDS):
            raise RunError("the panel did not start", hint="see its log for the reason")

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    def close(self) -> None:
        """End the streams, stop listening, and wait for the thread."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])


class _Server(uvicorn.Server):
    """uvicorn that tells when it answers, and ends the streams before it ends."""

    def __init__(self, config: uvicorn.Config, app: PanelApp) -> None:
        super().__init__(config)
        self.answers = threading.Event()
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.close()
        await asyncio.sleep(0)
        await super().shutdown(sockets)


def serve_panel(
    run: RunFolder,
    port: int,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    clock: Clock | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> PanelServer:
    """Serve the panel of a run and its `/metrics`; port 0 takes any free one.

    Raises:
        SpecError: Other machines could reach the host, and there is no good token.
        RunError: The port is taken or may not be used.
    """
    app = create_app(run, Access.of(host, token), clock=clock, poll_seconds=poll_seconds)
    return PanelServer(run, _bound(host, port), app)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise cannot_listen(error, host, port, where="--port") from error
    return sock
