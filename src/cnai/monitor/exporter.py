"""Answer Prometheus: `/metrics` of a run over HTTP, and the text for a service's own server."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    generate_latest,
    start_http_server,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cnai.core.clock import Clock
from cnai.core.errors import RunError
from cnai.core.runfolder import RunFolder
from cnai.core.serving import ServeSnapshot
from cnai.monitor.families import serve_families, train_families
from cnai.monitor.follow import RunFollower
from cnai.monitor.progress import RunProgress


class _AtScrape(Collector):
    """Makes the families when they are asked for, one scrape at a time."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            families = list(self._families())
        yield from families

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the run."""
        return []


def render_training(progress: RunProgress) -> tuple[bytes, str]:
    """Return the metrics of a run as text, and its content type."""
    return _render(lambda: train_families(progress)), CONTENT_TYPE_LATEST


def render_serving(snapshot: ServeSnapshot) -> tuple[bytes, str]:
    """Return the metrics of a service as text, and its content type."""
    return _render(lambda: serve_families(snapshot)), CONTENT_TYPE_LATEST


def _render(families: Callable[[], Iterable[Metric]]) -> bytes:
    return generate_latest(_registry(families))


def _registry(families: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry of its own: the process's default one counts other things."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_AtScrape(families))
    return registry


class MetricsServer:
    """A thread that answers `/metrics`; close it, or use it as a context."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve_metrics(
    run: RunFolder, port: int, *, host: str = "127.0.0.1", clock: Clock | None = None
) -> MetricsServer:
    """Answer `/metrics` of a run from a thread; port 0 takes any free one.

    Each scrape reads the events that are new, so that nothing is done between scrapes.

    Raises:
        RunError: The port is taken or may not be used.
    """
    follower = RunFollower(run, clock)
    registry = _registry(lambda: train_families(follower.progress()))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise cannot_listen(error, host, port, where="monitor.prometheus_port") from error
    return MetricsServer(server, thread)


def cannot_listen(error: OSError, host: str, port: int, *, where: str) -> RunError:
    """Return the error that says why a port cannot be had, and which to take instead."""
    taken = error.errno == errno.EADDRINUSE
    reason = "is in use by another process" if taken else f"cannot be used: {error.strerror}"
    change = f"--set {where}={_other(port)}" if "." in where else f"{where} {_other(port)}"
    return RunError(
        f"port {port} on {host} {reason}",
        where=where,
        hint=f"take another one, for instance `{change}`"
        + (f", or see who holds it with `ss -ltnp 'sport = :{port}'`" if taken else ""),
    )


def _other(port: int) -> int:
    return port + 1 if 1024 <= port < 65535 else 9460
