"""A process that has imported torch once and forks training ranks in milliseconds.

`import torch` costs seconds of CPU in each process; eight ranks that each import it cost more than
a small model's training. This server imports the modules named on its command line, then waits for
commands, one JSON object a line on standard input, and answers on standard output:

    {"start": {"target": "package.module:function", "ranks": 8, "payload": {...},
               "logs": "FOLDER", "environment": {...}, "attempt": 0}}
        -> {"started": {"pids": [...]}}   then, as they end, {"ended": {"rank": 3, "code": 0}}
    {"signal": 15}                        sent on to every living rank

A SIGTERM to the server itself, as a machine that is about to go away sends, is passed on to the
ranks, which save and end; `{"notice": {}}` tells the parent.

Nothing that it starts outlives it. When standard input closes, because its parent has ended in
whatever way, it kills its ranks and ends; and the kernel kills the ranks when the server itself is
killed (PR_SET_PDEATHSIG). It makes no process group and touches no tensor, so that forking is safe.

The store through which ranks find each other lives in a child of its own, one an attempt: never in
a rank, whose death would take it along, and never reused, because a new attempt would read the old
one's addresses.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from cnai.core.runfolder import ATTEMPT_MARK

_PR_SET_PDEATHSIG = 1
_STORE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContext:
    """What a forked rank knows of itself.

    Attributes:
        store: Host and port of the store through which the ranks of this attempt find each other.
        payload: Whatever the command carried.
    """

    rank: int
    ranks: int
    attempt: int
    store: tuple[str, int]
    payload: dict[str, Any]


class ForkServer:
    """Serves one parent over a pair of file handles."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._ranks: dict[int, int] = {}
        self._store_pid: int | None = None
        self._noticed = False

    def serve(self) -> None:
        """Obey commands until standard input closes, then kill what is left."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._notice)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._commands, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        pending = b""
        try:
            while True:
                for key, _ in selector.select():
                    chunk = os.read(cast("int", key.fileobj), 65536)
                    if key.fileobj == wake_read:
                        self._pass_notice_on()
                        self._reap()
                        continue
                    if not chunk:
                        return
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        self._obey(json.loads(line))
        finally:
            self._signal(signal.SIGKILL)
            self._end_store()

    def _obey(self, command: dict[str, Any]) -> None:
        if "start" in command:
            self._start(command["start"])
        elif "signal" in command:
            self._signal(command["signal"])

    def _start(self, order: dict[str, Any]) -> None:
        self._end_store()
        port = self._start_store()
        for rank in range(order["ranks"]):
            context = RankContext(
                rank=rank,
                ranks=order["ranks"],
                attempt=order["attempt"],
                store=("127.0.0.1", port),
                payload=order["payload"],
            )
            log = Path(order["logs"]) / f"rank-{rank}.log"
            pid = self._fork(lambda c=context, f=log: _run_rank(order, c, f))
            self._ranks[pid] = rank
        self._answer({"started": {"pids": list(self._ranks)}})

    def _fork(self, body: Any) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._commands)
            os.close(self._answers)
            die_with_parent(parent)
            code = body()
        finally:
            os._exit(code)

    def _start_store(self) -> int:
        read, write = os.pipe()
        self._store_pid = self._fork(lambda: _host_store(write))
        os.close(write)
        with selectors.DefaultSelector() as selector:
            selector.register(read, selectors.EVENT_READ)
            if not selector.select(_STORE_SECONDS):
                raise RuntimeError("the store of the ranks did not come up")
        port = int(os.read(read, 16))
        os.close(read)
        return port

    def _end_store(self) -> None:
        if self._store_pid is not None:
            os.kill(self._store_pid, signal.SIGKILL)
            os.waitpid(self._store_pid, 0)
            self._store_pid = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._store_pid:
                self._store_pid = None
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                code = os.waitstatus_to_exitcode(status)
                self._answer({"ended": {"rank": rank, "code": code}})
                if not self._ranks:
                    self._end_store()

    def _notice(self, *_: object) -> None:
        self._noticed = True

    def _pass_notice_on(self) -> None:
        if self._noticed:
            self._noticed = False
            self._answer({"notice": {}})
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        for pid in self._ranks:
            os.kill(pid, number)

    def _answer(self, answer: dict[str, Any]) -> None:
        os.write(self._answers, json.dumps(answer).encode() + b"\n")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` ends, and check that it has not yet."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _host_store(port_pipe: int) -> NoReturn:
    """Hold the store and report its port."""
    from torch.distributed import TCPStore  # noqa: PLC0415 - the server imports torch by request

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(port_pipe, str(store.port).encode())
    os.close(port_pipe)
    while True:
        signal.pause()


def _run_rank(order: dict[str, Any], context: RankContext, log: Path) -> int:
    """Become a rank: its own log, its environment, then the function that was named."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.write(1, f"{ATTEMPT_MARK}{context.attempt}, process {os.getpid()}\n".encode())
    os.environ.update(order["environment"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, function = order["target"].partition(":")
    try:
        code: int = getattr(importlib.import_module(module), function)(context)
    except BaseException:  # noqa: BLE001 - a rank reports whatever ends it, then ends
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main() -> None:
    """Import the modules named on the command line, say so, and serve."""
    commands, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # whatever an import prints must not reach the channel of answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for question in (signal.SIGUSR1, signal.SIGUSR2):  # asked before a rank can answer
        signal.signal(question, signal.SIG_IGN)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    os.write(answers, b'{"ready": {}}\n')
    ForkServer(commands, answers).serve()
    os._exit(0)  # tearing down all that was imported takes seconds, and whoever waits has gone


if __name__ == "__main__":
    main()
