"""Ranks as processes of this machine, forked by a server that has imported torch once."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import psutil

from cnai.cluster.ranks import GONE, Order, RankEnded, RankProcess
from cnai.core.errors import ClusterError
from cnai.core.fleet import Fleet, Node

_START_SECONDS = 180.0
_STATES = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "T",
    psutil.STATUS_ZOMBIE: "",
    psutil.STATUS_DEAD: "",
}


def local_fleet(*, name: str = "localhost") -> Fleet:
    """Describe this machine as CPU ranks; nine tenths of the free memory count as usable."""
    cpus = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    memory = psutil.virtual_memory()
    usable = int(memory.available * 0.9)
    node = Node(
        name=name,
        cpus=cpus or 1,
        memory_bytes=memory.total,
        device_kind="cpu",
        devices=cpus or 1,
        device_memory_bytes=usable,
    )
    return Fleet(nodes=(node,))


class LocalGang:
    """The ranks of one run, whole: they start together and end together.

    Args:
        server: Module that is run as the fork server.
        preload: Modules that it imports before it forks.

    Use as a context manager; leaving it kills whatever is left.

    Attributes:
        pids: Processes of the ranks of the attempt.
        noticed: Whether the server was asked to end (SIGTERM, a preemption notice) and has passed
            that on to the ranks of the attempt.
    """

    def __init__(self, *, server: str, preload: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", server, *preload]
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._backlog: list[dict[str, Any]] = []
        self._living: set[int] = set()
        self.pids: tuple[int, ...] = ()
        self.noticed = False

    @property
    def living(self) -> frozenset[int]:
        """Ranks whose end has not been reported."""
        return frozenset(self._living)

    def start(self, order: Order) -> None:
        """Start all ranks of an attempt.

        Raises:
            ClusterError: The server does not come up; its own words are in `logs/server.log`.
        """
        self.noticed = False
        if self._process is None:
            self._start_server(order)
        self._send({
            "start": {
                "target": order.target,
                "ranks": order.ranks,
                "payload": order.payload,
                "logs": str(order.logs.absolute()),
                "environment": order.environment,
                "attempt": order.attempt,
            }
        })  # fmt: skip
        self._living = set(range(order.ranks))
        answer = self._await("started", order)
        self.pids = tuple(answer["pids"])

    def poll(self, timeout_seconds: float) -> list[RankEnded]:
        """Wait at most that long and return the ranks that ended.

        When the server itself is gone all living ranks count as killed, which the kernel sees to.
        """
        answers, self._backlog = self._backlog, []
        answers += self._answers(0 if answers else timeout_seconds)
        self.noticed |= any("notice" in answer for answer in answers)
        ended = [RankEnded(**answer["ended"]) for answer in answers if "ended" in answer]
        if not ended and self._process is not None and self._process.poll() is not None:
            ended = [RankEnded(rank=rank, code=-signal.SIGKILL) for rank in sorted(self._living)]
            self.close()
        self._living -= {end.rank for end in ended}
        return ended

    def ask_to_stop(self) -> None:
        """Ask every rank to finish its step, save and leave."""
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal to every living rank."""
        self._send({"signal": int(number)})

    def process(self, rank: int) -> RankProcess:
        """Look at a rank's process; the kernel answers also for one that hangs or was stopped."""
        if rank >= len(self.pids):
            return GONE
        try:
            process = psutil.Process(self.pids[rank])
            with process.oneshot():
                cpu = process.cpu_times()
                state = _STATES.get(process.status(), "S")
        except psutil.NoSuchProcess:
            return GONE
        return RankProcess(state=state, cpu_seconds=cpu.user + cpu.system) if state else GONE

    def kill(self) -> None:
        """End every living rank now and wait until they are gone."""
        self.signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self._living and time.monotonic() < deadline:
            self.poll(0.1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what is left of the ranks and end the server."""
        process, self._process = self._process, None
        if process is None:
            return
        self._pending, self._backlog = b"", []
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _start_server(self, order: Order) -> None:
        log = order.logs / "server.log"
        # A session of its own: Ctrl-C at the terminal reaches this process alone, which then asks
        # the ranks to save.
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, **order.environment},
            )
        self._await("ready", order)

    def _await(self, kind: str, order: Order) -> dict[str, Any]:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self._backlog += self._answers(1.0)
            for answer in self._backlog:
                if kind in answer:
                    self._backlog.remove(answer)
                    content: dict[str, Any] = answer[kind]
                    return content
            if self._process is None or self._process.poll() is not None:
                break
        tail = (order.logs / "server.log").read_text(errors="replace").strip().splitlines()
        raise ClusterError(
            f"the server of the ranks did not start: {tail[-1] if tail else 'it said nothing'}",
            where=str(order.logs / "server.log"),
            hint="look at that log; `ai-cli doctor` checks the machine",
        )

    def _send(self, command: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def _answers(self, timeout_seconds: float) -> list[dict[str, Any]]:
        if self._process is None or self._process.stdout is None:
            return []
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_seconds):
                return []
        chunk = os.read(self._process.stdout.fileno(), 65536)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return [json.loads(line) for line in lines]
