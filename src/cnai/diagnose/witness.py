"""What one rank tells about a failure: by its exit code, its log, or its own report."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from cnai.core.events import RankFailed, RankLost
from cnai.core.runfolder import RunFolder
from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.exits import NATIVE_SIGNALS, Exit, read_exit
from cnai.diagnose.signatures import PEER_GONE, Role, match_line
from cnai.diagnose.tail import read_tail
from cnai.diagnose.tracebacks import Traceback, find_tracebacks, last_chain

_FAULT_OF_CODE = {"data": "data_error", "spec": "config_error", "plan": "config_error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A rank's testimony.

    Attributes:
        fault: Class of fault, None when the rank says nothing that is known.
        role: Whether it is the cause, waited for another rank, or lost its peer.
        confidence: How direct the evidence is.
        why: What was seen.
        frame: `FILE:LINE` of the user's code, when there is a traceback.
        hint: The repair that the error itself proposed.
    """

    rank: int
    time_unix: float
    fault: str | None
    role: Role
    confidence: float
    why: str
    line: LogLine | None = None
    frame: str | None = None
    hint: str | None = None

    @property
    def names_a_fault(self) -> bool:
        """Whether it says more than that another rank is gone."""
        return self.fault not in {None, PEER_GONE}


def rank_lines(run: RunFolder, rank: int) -> list[LogLine]:
    """Return the end of a rank's log."""
    path = run.rank_log(rank)
    return read_tail(path, name=str(path.relative_to(run.root)))


def of_failure(event: RankFailed, lines: Sequence[LogLine]) -> Witness:
    """Read a rank's own report of an error that the user can act on."""
    known = match_line(event.message, sure=True)
    fault = known.fault if known else _FAULT_OF_CODE.get(event.code)
    return Witness(
        rank=event.rank,
        time_unix=event.time_unix,
        fault=fault,
        role=known.role if known else Role.ROOT,
        confidence=0.95 if fault else 0.3,
        why=f"rank {event.rank} reported: {event.message}",
        line=next((line for line in reversed(lines) if event.message in line.text), None),
        hint=event.hint,
    )


def of_loss(event: RankLost, lines: Sequence[LogLine], memory: Sequence[LogLine]) -> Witness:
    """Read the end of a lost rank.

    Args:
        event: How it ended.
        lines: The end of its log.
        memory: Lines anywhere in the run's logs that tell of exhausted memory.
    """
    end = read_exit(event.exit_code)
    if end.signal is signal.SIGKILL:
        return _killed(event, end, memory)
    if end.signal is signal.SIGTERM:
        return _by_exit(event, end, "preempted", Role.CASCADE, 0.6)
    if end.signal in {signal.SIGINT, signal.SIGHUP}:
        return _by_exit(event, end, "user_abort", Role.ROOT, 0.9)
    spoken = of_log(event.rank, event.time_unix, lines)
    if spoken is not None and (end.signal is None or spoken.fault != "user_code_error"):
        return spoken
    if end.signal in NATIVE_SIGNALS:
        return _by_exit(event, end, "native_crash", Role.ROOT, 0.85)
    return _by_exit(event, end, None, Role.WAITED, 0.2)


def of_log(rank: int, time_unix: float, lines: Sequence[LogLine]) -> Witness | None:
    """Read a log: its last exception and what led to it, else the first line that names a fault.

    None when it says nothing that is known.
    """
    chain = last_chain(find_tracebacks(lines))
    if chain:
        return _of_exceptions(rank, time_unix, chain)
    matches = [(found, line) for line in lines if (found := match_line(line.text))]
    if not matches:
        return None
    found, line = max(matches, key=lambda match: (match[0].role, -match[1].number))
    return Witness(
        rank=rank,
        time_unix=time_unix,
        fault=found.fault,
        role=found.role,
        confidence=0.75,
        why=f"rank {rank} printed it in {line.file}:{line.number}",
        line=line,
    )


def _of_exceptions(rank: int, time_unix: float, chain: Sequence[Traceback]) -> Witness:
    known = [(match_line(one.error.text, sure=True), one) for one in chain]
    named = [(found, one) for found, one in known if found is not None]
    if not named:
        last = chain[-1]
        return Witness(
            rank=rank,
            time_unix=time_unix,
            fault="user_code_error",
            role=Role.ROOT,
            confidence=0.7,
            why=f"rank {rank} ended with an exception in {last.error.file}:{last.error.number}",
            line=last.error,
            frame=last.frame,
        )
    found, one = max(named, key=lambda pair: (pair[0].role, -pair[1].error.number))
    return Witness(
        rank=rank,
        time_unix=time_unix,
        fault=found.fault,
        role=found.role,
        confidence=0.9,
        why=f"rank {rank} ended with it in {one.error.file}:{one.error.number}",
        line=one.error,
        frame=one.frame,
    )


def _killed(event: RankLost, end: Exit, memory: Sequence[LogLine]) -> Witness:
    if memory:
        return Witness(
            rank=event.rank,
            time_unix=event.time_unix,
            fault="host_oom",
            role=Role.ROOT,
            confidence=0.9,
            why=f"rank {event.rank} ended by {end} and memory had run out",
            line=memory[-1],
        )
    return _by_exit(event, end, "killed", Role.ROOT, 0.85)


def _by_exit(
    event: RankLost, end: Exit, fault: str | None, role: Role, confidence: float
) -> Witness:
    return Witness(
        rank=event.rank,
        time_unix=event.time_unix,
        fault=fault,
        role=role,
        confidence=confidence,
        why=f"rank {event.rank} ended by {end}"
        + (f" after step {event.step}" if event.step is not None else " before its first step"),
    )
