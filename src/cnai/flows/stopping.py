"""Ctrl-C and SIGTERM as a wish that a flow looks at, instead of an exception anywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopWish:
    """How often the user has asked to stop: once means save first, twice means now."""

    def __init__(self) -> None:
        self.times = 0

    def add(self, *_: object) -> None:
        """Count one more request."""
        self.times += 1

    def notice(self) -> None:
        """Take a preemption notice that reached the ranks: one wish, however often it is told."""
        self.times = max(self.times, 1)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does while the block runs, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stop_wishes() -> Iterator[StopWish]:
    """Collect SIGINT and SIGTERM while the block runs; outside the main thread there are none."""
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, wish.add) for number in numbers}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
