"""What one rank tells about a failure: by its exit code, its log, or its own report."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from cnai.core.events import RankFailed, RankLost
from cnai.core.runfolder import RunFolder
from cnai.diagnose.diagnosis import LogLine
from cnai.diagnose.exits import NATIVE_SIGNALS, Exit, read_exit
from cnai.diagnose.ranking import Clue, rank_clues
from cnai.diagnose.scan import Scanner
from cnai.diagnose.signatures import PEER_GONE, Matcher, Role
from cnai.diagnose.stacks import crash_frame
from cnai.diagnose.tail import read_tail

_FAULT_OF_CODE = {"data": "data_error", "spec": "config_error", "plan": "config_error"}
_LEAST = 0.3
_SENT = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Part(IntEnum):
    """What a rank's testimony makes of it; the larger is nearer to the cause."""

    VICTIM = 0
    WAITED = 1
    ROOT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A rank's testimony.

    Attributes:
        fault: Class of fault, None when the rank says nothing that is known.
        part: Whether it is the cause, waited for another rank, or lost its peer.
        confidence: How direct the evidence is.
        why: What was seen.
        frame: `FILE:LINE` of the user's code, when there is a traceback.
        hint: The repair that the error itself proposed.
        others: Other classes that it may be.
        step: Steps that it had finished.
        said: What to tell instead of the line, where that is not the cause itself.
    """

    rank: int
    time_unix: float
    fault: str | None
    part: Part
    confidence: float
    why: str
    line: LogLine | None = None
    frame: str | None = None
    hint: str | None = None
    others: tuple[str, ...] = ()
    step: int | None = None
    said: str | None = None

    @property
    def names_a_fault(self) -> bool:
        """Whether it says more than that another rank is gone."""
        return self.fault not in {None, PEER_GONE}


def rank_lines(run: RunFolder, rank: int, attempt: int | None = None) -> list[LogLine]:
    """Return the end of what a rank printed in an attempt, None = the newest."""
    path = run.rank_log(rank)
    return read_tail(path, name=str(path.relative_to(run.root)), attempt=attempt)


def of_failure(event: RankFailed, lines: Sequence[LogLine]) -> Witness:
    """Read a rank's own report of an error that the user can act on."""
    told = [LogLine(file="report", number=1, text=event.message)]
    known = of_log(event.rank, event.time_unix, told)
    fault = known.fault if known else _FAULT_OF_CODE.get(event.code)
    return Witness(
        rank=event.rank,
        time_unix=event.time_unix,
        fault=fault,
        part=known.part if known else Part.ROOT,
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
    if event.exit_code == 0:
        return _left(event)
    if end.signal in _SENT:
        return _signalled(event, end, memory)
    spoken = of_log(event.rank, event.time_unix, lines)
    if end.signal not in NATIVE_SIGNALS:
        return spoken or _by_exit(event, end, None, Part.WAITED, 0.2)
    if spoken is None or spoken.fault == "user_code_error":
        spoken = _by_exit(event, end, "native_crash", Part.ROOT, 0.85)
    return replace(spoken, frame=spoken.frame or crash_frame(line.text for line in lines))


def of_log(rank: int, time_unix: float, lines: Sequence[LogLine]) -> Witness | None:
    """Read a log through the table; None when it says nothing that is known."""
    scanner = Scanner(str(rank), Matcher())
    for line in lines:
        scanner.hear(line.text)
    ranking = rank_clues([scanner.result()])
    best = ranking.candidates[0] if ranking.candidates else None
    if best is not None and best.score >= _LEAST:
        others = tuple(one.fault for one in ranking.candidates[1:])
        return _of_clue(rank, time_unix, best.clue, lines, others)
    gone = next((clue for clue in ranking.clues if clue.fault == PEER_GONE), None)
    return None if gone is None else _of_clue(rank, time_unix, gone, lines, ())


def _of_clue(
    rank: int, time_unix: float, clue: Clue, lines: Sequence[LogLine], others: tuple[str, ...]
) -> Witness:
    parts = {Role.CASCADE: Part.VICTIM, Role.WAITED: Part.WAITED}
    line = lines[clue.line.number - 1]
    return Witness(
        rank=rank,
        time_unix=time_unix,
        fault=clue.fault,
        part=parts.get(clue.role, Part.ROOT),
        confidence=round(min(0.95, 0.1 + 0.8 * clue.score), 2),
        why=f"rank {rank} printed it in {line.file}:{line.number}",
        line=line,
        frame=clue.frame,
        others=others,
    )


def _left(event: RankLost) -> Witness:
    """Describe a rank that ended well while the others went on."""
    return Witness(
        rank=event.rank,
        time_unix=event.time_unix,
        fault="collective_mismatch",
        part=Part.ROOT,
        confidence=0.85,
        why=f"rank {event.rank} left with exit code 0 after step {event.step or 0}, "
        "while the others had steps to do",
        others=("user_code_error",),
        step=event.step,
    )


def _signalled(event: RankLost, end: Exit, memory: Sequence[LogLine]) -> Witness:
    """Read an end that somebody else wanted."""
    if end.signal is signal.SIGKILL:
        return _killed(event, end, memory)
    if end.signal is signal.SIGTERM:
        return _by_exit(event, end, "preempted", Part.VICTIM, 0.6)
    return _by_exit(event, end, "user_abort", Part.ROOT, 0.9)


def _killed(event: RankLost, end: Exit, memory: Sequence[LogLine]) -> Witness:
    if memory:
        return Witness(
            rank=event.rank,
            time_unix=event.time_unix,
            fault="host_oom",
            part=Part.ROOT,
            confidence=0.9,
            why=f"rank {event.rank} ended by {end} and memory had run out",
            line=memory[-1],
        )
    return _by_exit(event, end, "killed", Part.ROOT, 0.85)


def _by_exit(
    event: RankLost, end: Exit, fault: str | None, part: Part, confidence: float
) -> Witness:
    return Witness(
        rank=event.rank,
        time_unix=event.time_unix,
        fault=fault,
        part=part,
        confidence=confidence,
        step=event.step,
        why=f"rank {event.rank} ended by {end}"
        + (f" after step {event.step}" if event.step is not None else " before its first step"),
    )
