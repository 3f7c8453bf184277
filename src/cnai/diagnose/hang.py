"""What the events of a run tell of a hang: the newest look at all ranks."""

from __future__ import annotations

from collections.abc import Sequence

from cnai.core.events import (
    AttemptStarted,
    Event,
    Finding,
    RankFailed,
    RankLost,
    RankStood,
    StepDone,
)
from cnai.diagnose.standing import Hang, locate


def hang_of(events: Sequence[Event]) -> tuple[Hang, Finding] | None:
    """Return where the attempt that broke off last hangs, with the finding that told it.

    None when it did not hang, or went on by itself.
    """
    attempt = last_attempt(events)
    inside = [one for one in events if _attempt_of(one, attempt)]
    start = min((one.time_unix for one in inside), default=0.0)
    later = [e.time_unix for e in events if isinstance(e, AttemptStarted) and e.time_unix > start]
    end = min(later, default=float("inf"))
    found = [
        e for e in events
        if isinstance(e, Finding) and e.detector == "hung" and start <= e.time_unix < end
    ]  # fmt: skip
    if not found:
        return None
    steps = [e.time_unix for e in inside if isinstance(e, StepDone)]
    if steps and max(steps) > found[-1].time_unix:
        return None
    before = [e for e in inside if isinstance(e, RankStood) and e.time_unix <= found[-1].time_unix]
    look = max((e.look for e in before), default=0)
    hang = locate([e for e in before if e.look == look])
    return None if hang is None else (hang, found[-1])


def last_stood(events: Sequence[Event]) -> dict[int, RankStood]:
    """Return where each rank of the attempt that broke off last stood in its last look."""
    attempt = last_attempt(events)
    return {
        one.rank: one for one in events if isinstance(one, RankStood) and one.attempt == attempt
    }


def last_attempt(events: Sequence[Event]) -> int:
    """Return the newest attempt that lost a rank, else the newest."""
    lost = [e.attempt for e in events if isinstance(e, RankLost | RankFailed)]
    return max(lost or [e.attempt for e in events if isinstance(e, AttemptStarted)], default=0)


def _attempt_of(event: Event, attempt: int) -> bool:
    return getattr(event, "attempt", None) == attempt
