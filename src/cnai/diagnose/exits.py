"""What an exit code says about how a process ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass

NATIVE_SIGNALS = frozenset({
    signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE,
})  # fmt: skip
"""Signals that a process earns by its own machine code."""

_SHELL_BASE = 128
_LAST_SIGNAL = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended: by a signal, or with a code."""

    code: int
    signal: signal.Signals | None

    def __str__(self) -> str:
        return f"signal {self.signal.name}" if self.signal else f"exit code {self.code}"


def read_exit(code: int) -> Exit:
    """Read an exit code as subprocess (minus the signal) or a shell (128 + signal) has it."""
    number = -code if code < 0 else code - _SHELL_BASE
    if 0 < number <= _LAST_SIGNAL:
        try:
            return Exit(code=code, signal=signal.Signals(number))
        except ValueError:
            return Exit(code=code, signal=None)
    return Exit(code=code, signal=None)
