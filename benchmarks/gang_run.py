"""Ranks of a benchmark, started and waited for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cnai.cluster.local import LocalGang
from cnai.cluster.ranks import Order

PLAIN = {
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip
"""One thread a rank, which does not spin while it waits."""


def run_ranks(
    gang: LocalGang,
    target: str,
    ranks: int,
    payload: dict[str, Any],
    logs: Path,
    environment: Mapping[str, str] = PLAIN,
) -> None:
    """Run a function of a file in this folder as so many ranks, to their end.

    Args:
        target: `file:function`.
        logs: Folder of the ranks' logs, which are printed if one fails; then this process ends.
    """
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    gang.start(
        Order(
            target=target,
            ranks=ranks,
            payload=payload,
            logs=logs,
            environment={**environment, **here},
            attempt=0,
        )
    )
    failed = False
    while gang.living:
        failed |= any(end.code for end in gang.poll(0.2))
    if failed:
        sys.exit("\n".join(log.read_text() for log in logs.glob("*.log")))
