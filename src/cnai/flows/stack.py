"""Prometheus, Alertmanager and Grafana beside a panel: what is installed, started and wired.

Everything lies in the run folder under `stack`: the configuration, what Prometheus has stored, and
the servers' logs. They listen on this machine alone, end with the block, and with the process that
started them however it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from cnai.core.errors import RunError
from cnai.core.files import saving, write_atomically
from cnai.core.runfolder import RunFolder
from cnai.monitor.stack import Wiring, stack_files

_HOST = "127.0.0.1"
_READY_SECONDS = 30.0
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server that may be installed.

    Attributes:
        programs: Names under which distributions install it.
        port: The usual one; another is taken when that is in use.
        ready: Path that answers 200 when it is ready.
    """

    name: str
    programs: tuple[str, ...]
    port: int
    ready: str


_SERVERS = (
    _Server(name="prometheus", programs=("prometheus",), port=9090, ready="/-/ready"),
    _Server(
        name="alertmanager",
        programs=("prometheus-alertmanager", "alertmanager"),
        port=9093,
        ready="/-/ready",
    ),
    _Server(name="grafana", programs=("grafana-server", "grafana"), port=3000, ready="/api/health"),
)


@contextlib.contextmanager
def stack_beside(
    run: RunFolder, panel: str, tell: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Start what is installed, wired to each other, for the length of the block.

    Args:
        panel: Address of the run's panel, on this machine, which has its `/metrics`.
        tell: Hears what is started and what is not installed.

    Yields:
        The address of each server that runs, by its name.

    Raises:
        RunError: Prometheus is not installed, or a server does not start.
    """
    programs = {server.name: _installed(server.programs) for server in _SERVERS}
    if programs["prometheus"] is None:
        raise RunError(
            "Prometheus is not installed, so there is no stack to start",
            where="--stack",
            hint="on Debian: apt install prometheus prometheus-alertmanager; without it "
            "`ai-cli monitor` shows the panel and /metrics all the same",
        )
    for name, program in programs.items():
        if program is None:
            tell(f"{name} is not installed and is left out")
    ports = {server.name: _free_port(server.port) for server in _SERVERS}
    folder = run.root.resolve() / "stack"
    wiring = replace(
        Wiring(hooks=None, dashboards=str(folder / "grafana" / "dashboards")),
        train=urlsplit(panel).netloc,
        prometheus=f"{_HOST}:{ports['prometheus']}",
        alertmanager=f"{_HOST}:{ports['alertmanager']}",
    )
    for name, content in stack_files(wiring).items():
        path = folder / name
        with saving(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    with contextlib.ExitStack() as started:
        found = {}
        for server in _SERVERS:
            program = programs[server.name]
            if program is None:
                continue
            process = started.enter_context(
                _running(server.name, program, folder, ports[server.name])
            )
            found[server.name] = f"http://{_HOST}:{ports[server.name]}"
            _wait_until_ready(server, process, found[server.name], folder)
            tell(f"{server.name} at {found[server.name]}")
        yield found


def _installed(programs: Sequence[str]) -> str | None:
    return next((path for name in programs if (path := shutil.which(name))), None)


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RunError("no port is free", where="--stack", hint="end other programs first")


def _arguments(name: str, program: str, folder: Path, port: int) -> list[str]:
    address = f"{_HOST}:{port}"
    if name == "prometheus":
        return [
            program,
            f"--config.file={folder / 'prometheus' / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data' / name}",
            f"--web.listen-address={address}",
        ]
    if name == "alertmanager":
        return [
            program,
            f"--config.file={folder / 'alertmanager' / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data' / name}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
    verb = ["server"] if Path(program).name == "grafana" else []
    return [program, *verb, "--homepath", "/usr/share/grafana"]


def _grafana_environment(folder: Path, port: int) -> dict[str, str]:
    return {
        "GF_SERVER_HTTP_ADDR": _HOST,
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder / "data" / "grafana"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PROVISIONING": str(folder / "grafana" / "provisioning"),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    }


@contextlib.contextmanager
def _running(name: str, program: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a server running for the length of the block, its output in a log."""
    log = folder / "logs" / f"{name}.log"
    with saving(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).mkdir(parents=True, exist_ok=True)
    # Ends with this process, also when that is killed.
    keeper = shutil.which("setpriv")
    before = [keeper, "--pdeathsig", "TERM"] if keeper else []
    environment = {
        **os.environ,
        **(_grafana_environment(folder, port) if name == "grafana" else {}),
    }
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            [*before, *_arguments(name, program, folder, port)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(
    server: _Server, process: subprocess.Popen[bytes], url: str, folder: Path
) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(url + server.ready, timeout=2).close()  # noqa: S310
            return
        time.sleep(0.1)
    log = folder / "logs" / f"{server.name}.log"
    raise RunError(
        f"{server.name} did not become ready",
        where=str(log),
        hint="its log says why; `ai-cli monitor` without --stack does without it",
    )
