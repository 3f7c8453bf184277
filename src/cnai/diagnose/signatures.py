"""Lines that name a fault; one row a way of saying it, the first row that matches counts.

A row describes what a class of libraries writes, not one line of one log. The classes and their
meaning are listed in docs/rooms/diagnose.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """How much a line says about the cause; the larger wins between ranks."""

    CASCADE = 0
    """Another rank is gone; says nothing about why."""
    WAITED = 1
    """Waited too long for another rank, which may have printed nothing."""
    ROOT = 2
    """The cause itself."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A way in which a fault shows itself in a line."""

    fault: str
    role: Role
    pattern: re.Pattern[str]


PEER_GONE = "peer_gone"
"""What a victim says; never the fault of a run."""


def _row(fault: str, pattern: str, role: Role = Role.ROOT) -> Signature:
    return Signature(fault, role, re.compile(pattern, re.IGNORECASE))


SIGNATURES: tuple[Signature, ...] = (
    _row("disk_full", r"no space left|disk quota exceeded|errno 28\b|errno 122\b|\bENOSPC\b"),
    _row("gpu_oom", r"(cuda|hip|npu) (error: )?out of memory|torch\.(cuda\.)?OutOfMemoryError"),
    _row(
        "host_oom",
        r"\bMemoryError\b|cannot allocate memory|std::bad_alloc|oom-kill|out of memory: killed"
        r"|memory cgroup out of memory|\boom_kill\b|OOMKilled|not enough memory: you tried",
    ),
    _row(
        "ckpt_corrupt",
        r"failed finding central directory|invalid header or archive is corrupted"
        r"|PytorchStreamReader|unpickling stack|pickle data was truncated"
        r"|(checkpoint|shard|safetensors).*(corrupt|damaged|truncat|checksum|incomplete)"
        r"|(corrupt|damaged|truncated).*(checkpoint|shard)|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|no checkpoint .* is whole|cannot read the checkpoint|checkpoint (file|lacks) `",
    ),
    _row("port_in_use", r"address already in use|EADDRINUSE|port \d+ is (already )?in use"),
    _row(
        PEER_GONE,
        r"connection (closed|reset) by (remote )?peer|connection reset\b|remote process exited"
        r"|broken ?pipe|connection was (likely )?(closed|aborted)|socket closed|peer closed"
        r"|ncclRemoteError|recvValue failed|sendBytes failed",
        Role.CASCADE,
    ),
    _row(
        "rendezvous_failure",
        r"rendezvous\w*(error|timeout|closed|connection)|failed to (join|connect to) .*store"
        r"|client socket has (timed out|failed to connect)|connectFullMesh failed"
        r"|timed out after \d+.* waiting for clients|DistStoreError|DistNetworkError",
    ),
    _row(
        "collective_timeout",
        r"watchdog caught collective operation timeout|collective (operation )?timed? ?out"
        r"|timed out waiting \d+ms for (recv|send)|application timeout caused pair closure"
        r"|monitoredBarrier.*(timed out|failed)|DistBackendError.*timeout"
        r"|wait timeout after \d+ms",
        Role.WAITED,
    ),
    _row(
        "nan_loss",
        r"\b(loss|grad(ient)?[ _]?norm|norm)\b\W{0,4}(is |was |became )?[-+]?(nan|inf)\b"
        r"|non-?finite|(nan|inf) (or inf )?(values? )?(found )?in (loss|grad)",
    ),
    _row("user_abort", r"\bKeyboardInterrupt\b"),
    _row(
        "data_error",
        r"UnidentifiedImageError|UnicodeDecodeError|JSONDecodeError|ArrowInvalid|ParquetError"
        r"|(dataset|data set|sample|block|blob|shard of data).*"
        r"(empty|missing|corrupt|damaged|checksum|not found)|stack expects each tensor to be equal"
        r"|\bDataError\b",
    ),
    _row("dependency_import", r"\b(ModuleNotFoundError|ImportError)\b|undefined symbol"),
    _row("permission_denied", r"permission denied|read-only file system|\bPermissionError\b"),
    _row(
        "native_crash",
        r"segmentation fault|fatal python error|illegal instruction|core dumped"
        r"|terminate called (after throwing|without an active)|bus error",
    ),
)

FAULTS = (
    frozenset(row.fault for row in SIGNATURES)
    | {"killed", "preempted", "config_error", "user_code_error"}
) - {PEER_GONE}
"""Every class that a diagnosis may name."""

# Advice and reports of errors that were handled are no evidence.
_BENIGN = re.compile(
    r"\b(retry(ing)?|retried|will be ignored|ignored in|falling back|warn(ing)?:|hint:|consider|"
    r"might be|you can)\b",
    re.IGNORECASE,
)


def match_line(text: str, *, sure: bool = False) -> Signature | None:
    """Return the signature of a line.

    Args:
        text: The line.
        sure: The line is known to have ended the process, so that soft words do not excuse it.
    """
    if not sure and _BENIGN.search(text):
        return None
    return next((row for row in SIGNATURES if row.pattern.search(text)), None)
