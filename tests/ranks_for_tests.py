"""What ranks do in tests of the doors to machines."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any


def say(context: Any) -> int:
    word, greeting = context.payload["word"], os.environ["GREETING"]
    sys.stdout.write(f"rank {context.rank} of {context.ranks}: {word}, {greeting}\n")
    return 0


def wait(context: Any) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def wait_politely(context: Any) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM})
    return 0


def end_in_their_own_way(context: Any) -> int:
    if context.rank == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    if context.rank == 3:
        raise ValueError("rank 3 gives up")
    return (0, 7)[context.rank]


def be_a_parent() -> None:
    """Start ranks that wait, say so, and wait too."""
    from cnai.cluster.local import LocalGang
    from cnai.cluster.ranks import Order

    gang = LocalGang(server="cnai.train.forkserver", preload=["ranks_for_tests"])
    gang.start(
        Order(
            target="ranks_for_tests:wait",
            ranks=2,
            payload={},
            logs=Path(sys.argv[1]),
            environment={},
            attempt=0,
        )
    )
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while True:
        signal.pause()
