"""`ai-cli watch` and `ai-cli monitor`: how a run stands, for people and for Prometheus."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from cnai.core.clock import Clock, SystemClock
from cnai.core.runfolder import RunFolder
from cnai.flows.listener import Listener
from cnai.flows.stopping import stop_wishes
from cnai.monitor import RunFollower, RunProgress, serve_metrics

_POLL_SECONDS = 0.5


def progress_of(run: RunFolder) -> RunProgress:
    """Return how a run stands now."""
    return RunFollower(run).progress()


def follow_run(run: RunFolder, listener: Listener, clock: Clock | None = None) -> RunProgress:
    """Show a run until it ends, or until nobody works on it any more, or Ctrl-C."""
    time = clock or SystemClock()
    follower = RunFollower(run)
    with stop_wishes() as wish:
        while True:
            progress = follower.progress()
            listener.training(progress)
            if wish.times or progress.state.is_final or run.owner() is None:
                return progress
            time.sleep(_POLL_SECONDS)


def export_metrics(run: RunFolder, port: int, *, on_ready: Callable[[str], None]) -> None:
    """Serve `/metrics` of a run until SIGINT or SIGTERM.

    Raises:
        RunError: The port is in use.
    """
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with serve_metrics(run, port) as server:
        on_ready(f"http://127.0.0.1:{server.port}/metrics")
        ended.wait()
