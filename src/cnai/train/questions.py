"""How a rank is asked where it stands, and where its answers lie. Needs no torch."""

from __future__ import annotations

import signal
from pathlib import Path

STACKS_SIGNAL = signal.SIGUSR1
COLLECTIVES_SIGNAL = signal.SIGUSR2


def stacks_of(folder: Path, rank: int) -> Path:
    """Return the file to which a rank appends its stacks; its first line names the main thread."""
    return folder / f"rank-{rank}.stacks"


def collectives_of(folder: Path, rank: int) -> Path:
    """Return the file in which a rank tells of its collectives."""
    return folder / f"rank-{rank}.json"
