"""What a diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cnai.core.events import Repair


class Verdict(StrEnum):
    """The short answer."""

    FAULT = "fault"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a log, found again by file and number (from 1)."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A class of fault that it may be, with a confidence from 0 to 1."""

    fault: str
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a run broke off, or that it did not.

    Attributes:
        fault: Class of the fault, `disk_full`; None unless the verdict is `fault`.
        summary: One sentence for people.
        root_rank: The rank that failed first; None when no rank stands out.
        root_line: The line that says so; None when the rank printed nothing.
        cascade_ranks: Ranks that only failed because another was gone.
        confidence: 0 to 1, by rule and not by statistics: how direct the evidence is.
        evidence: What was seen, a sentence each.
        repairs: What to do, best first.
        recovered: Whether the run went on after the fault.
        action: What to do by default: restart_same, restart_exclude_node, previous_checkpoint,
            change_config, fix_code or hold; None without a fault.
        root_stream: Log in which it began: a rank's number, `agent`, `dmesg:NODE`.
        top: The classes that it may be, best first.
        root_frame: `FILE:LINE` of the code that the root was in; None when it is not known.
        root_step: Steps that the root had finished.
        root_phase: What it was doing, for instance `data` or `collective`.
        root_host: Its machine.
    """

    verdict: Verdict
    summary: str
    confidence: float
    fault: str | None = None
    root_rank: int | None = None
    root_line: LogLine | None = None
    cascade_ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    repairs: tuple[Repair, ...] = ()
    recovered: bool = False
    action: str | None = None
    root_stream: str | None = None
    top: tuple[Guess, ...] = ()
    root_frame: str | None = None
    root_step: int | None = None
    root_phase: str | None = None
    root_host: str | None = None
