"""The panel of a run: served until a signal, or kept beside a training as a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from cnai.core.runfolder import RunFolder
from cnai.flows.incident import incident_html
from cnai.flows.listener import Listener
from cnai.monitor.panel import serve_panel

TOKEN_VARIABLE = "CNAI_MONITOR_TOKEN"  # noqa: S105
"""Environment variable with the token that visitors from other machines must have."""

_END_SECONDS = 5.0
Servers = dict[str, str]


def show_panel(
    run: RunFolder,
    port: int,
    *,
    host: str = "127.0.0.1",
    with_parent: bool = False,
    beside: Callable[[str], AbstractContextManager[Servers]] | None = None,
    on_ready: Callable[[str, Servers], None],
) -> None:
    """Serve the panel of a run and its `/metrics` until SIGINT or SIGTERM.

    Args:
        run: The run.
        port: Port; 0 takes any free one.
        host: Address to listen on; one that other machines can reach needs a token.
        with_parent: End when stdin ends too, which it does when the process that gave it is gone.
        beside: Starts other servers, from the panel's address, for as long as it lives.
        on_ready: Called with the address of the page, and of the others by name.

    Raises:
        SpecError: Other machines could reach the panel, and there is no good token.
        RunError: The port is in use.
    """
    with (
        _ended_by_signals() as ended,
        serve_panel(
            run,
            port,
            host=host,
            token=os.environ.get(TOKEN_VARIABLE),
            draw_incident=incident_html,
        ) as server,
    ):
        if with_parent:
            threading.Thread(target=_watch_stdin, args=(ended,), daemon=True).start()
        with beside(server.url) if beside else contextlib.nullcontext({}) as others:
            on_ready(server.url, others)
            ended.wait()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch_stdin(ended: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ended.set()


@contextlib.contextmanager
def panel_beside(run: RunFolder, listener: Listener, *, wanted: bool) -> Iterator[None]:
    """Keep a panel in a process of its own while the block runs, if one is wanted.

    Whatever happens to that process, the block goes on; when this process is killed, it ends too.
    """
    if not wanted:
        yield
        return
    command = [
        sys.executable, "-m", "cnai", "monitor", str(run.root.resolve()),
        "--port", "0", "--with-parent",
    ]  # fmt: skip
    try:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        listener.warn(f"the panel did not start: {error}")
        yield
        return
    teller = threading.Thread(target=_tell, args=(process, listener), daemon=True)
    teller.start()
    try:
        yield
    finally:
        _end(process, teller)


def _tell(process: subprocess.Popen[str], listener: Listener) -> None:
    """Pass on what the panel says, to its end; nothing of it may stop the training."""
    assert process.stdout is not None
    for line in process.stdout:
        listener.note(line.rstrip().removesuffix("; Ctrl-C ends it"))


def _end(process: subprocess.Popen[str], teller: threading.Thread) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    teller.join(_END_SECONDS)
    if process.stdout is not None:
        process.stdout.close()
