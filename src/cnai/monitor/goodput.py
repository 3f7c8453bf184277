"""What the time of a run was spent on: every second, from its first event to its last.

A pure fold. Time is one line that is cut at the events: the part of a step that was computed, the
part in which it waited for data, the gap in which a checkpoint was copied, and so on. So the parts
add up to the whole by construction, whatever order the events come in.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    EvaluationDone,
    Event,
    LayoutChanged,
    RankFailed,
    RankLost,
    RunEnded,
    StepDone,
)

_REMEMBERED_GAPS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Seconds of a run by what they were spent on; they add up to `elapsed_seconds`.

    Attributes:
        share: Useful seconds over all; None before the first second.
        useful_seconds: Steps done for the first time.
        repeated_seconds: Steps done again after a loss.
        data_wait_seconds: Waiting for rows, within steps.
        checkpoint_seconds: Training held up by checkpoints.
        evaluation_seconds: Measuring on validation rows between steps.
        startup_seconds: Starting the ranks for the first time in a command, and ending them.
        recovery_seconds: From the last step before a loss or a change of layout to the first after.
        idle_seconds: Nobody worked on the run: between a failure, a stop or a kill, and the next
            start.
    """

    elapsed_seconds: float
    share: float | None
    useful_seconds: float = 0.0
    repeated_seconds: float = 0.0
    data_wait_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    startup_seconds: float = 0.0
    recovery_seconds: float = 0.0
    idle_seconds: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """The parts by name, `useful` and so on."""
        return {part: getattr(self, f"{part}_seconds") for part in PARTS}


PARTS = tuple(
    field.name.removesuffix("_seconds")
    for field in fields(Goodput)
    if field.name.endswith("_seconds") and field.name != "elapsed_seconds"
)

NOTHING = Goodput(elapsed_seconds=0.0, share=None)


class GoodputFold:
    """Takes events, about in order of time; gives the account at any moment."""

    def __init__(self) -> None:
        self._parts = dict.fromkeys(PARTS, 0.0)
        self._start: float | None = None
        self._cursor = 0.0
        self._between = "idle"
        """What time is spent on that no step accounts for; empty while steps follow each other."""
        self._attempt: int | None = None
        self._step: int | None = None
        self._top = 0
        self._kind = "useful"
        self._gaps: dict[int, tuple[str, float]] = {}
        self._owed: dict[int, dict[str, float]] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
        if self._start is None:
            self._start = self._cursor = event.time_unix
        match event:
            case StepDone():
                self._add_step(event)
            case AttemptStarted():
                self._begin(event)
            case CheckpointSaved():
                self._add_checkpoint(event)
            case EvaluationDone():
                self._owe(event.step, "evaluation", event.seconds)
            case RankLost() | RankFailed() | LayoutChanged():
                self._interrupt(event)
            case RunEnded():
                self._spend(event.time_unix, self._between or "startup")
                self._between = "idle"

    def goodput(self) -> Goodput:
        """Return the account up to the last event."""
        elapsed = 0.0 if self._start is None else self._cursor - self._start
        return Goodput(
            elapsed_seconds=elapsed,
            share=self._parts["useful"] / elapsed if elapsed > 0 else None,
            **{f"{part}_seconds": seconds for part, seconds in self._parts.items()},
        )

    def _begin(self, event: AttemptStarted) -> None:
        if self._attempt is not None and event.attempt <= self._attempt:
            return  # its steps were read first
        # Steps that break off without a loss or an end: whoever watched over them was killed.
        self._spend(event.time_unix, self._between or "idle")
        self._between = "recovery" if self._between == "recovery" else "startup"
        self._enter(event.attempt)

    def _enter(self, attempt: int) -> None:
        self._attempt = attempt
        self._step = None
        self._gaps.clear()
        self._owed.clear()

    def _interrupt(self, event: RankLost | RankFailed | LayoutChanged) -> None:
        if isinstance(event, LayoutChanged) or event.attempt == self._attempt:
            self._spend(event.time_unix, "idle" if self._between == "idle" else "recovery")
            self._between = self._between if self._between == "idle" else "recovery"

    def _add_step(self, event: StepDone) -> None:
        """Take a step from the first rank that reports it."""
        if self._attempt is None or event.attempt > self._attempt:
            self._between = self._between or "recovery"
            self._enter(event.attempt)
        elif event.attempt < self._attempt or (self._step is not None and event.step <= self._step):
            return
        passed = max(0.0, event.time_unix - self._cursor)
        inside = min(passed, max(0.0, event.step_seconds))
        waited = min(inside, max(0.0, event.data_wait_seconds))
        self._add_gap(passed - inside)
        self._kind = "repeated" if event.step <= self._top else "useful"
        self._parts["data_wait"] += waited
        self._parts[self._kind] += inside - waited
        self._cursor += passed
        self._between = ""
        self._step = event.step
        self._top = max(self._top, event.step)

    def _add_gap(self, seconds: float) -> None:
        """Account for the time between two steps, or before the first."""
        if self._between or self._step is None:
            self._parts[self._between or "startup"] += seconds
            return
        for part, owed in self._owed.pop(self._step, {}).items():
            held_up = min(seconds, owed)
            self._parts[part] += held_up
            seconds -= held_up
        self._parts[self._kind] += seconds
        self._gaps[self._step] = (self._kind, seconds)
        if len(self._gaps) > _REMEMBERED_GAPS:
            del self._gaps[next(iter(self._gaps))]

    def _add_checkpoint(self, event: CheckpointSaved) -> None:
        """Take a checkpoint; one that was waited for ends a command and moves time itself."""
        self._owe(event.step, "checkpoint", event.blocked_seconds)
        if event.blocked_seconds >= event.seconds and event.step == self._step:
            passed = max(0.0, event.time_unix - self._cursor)
            self._add_gap(passed)
            self._cursor += passed

    def _owe(self, step: int, part: str, seconds: float) -> None:
        """Take time between steps out of the gap after a step, known already or yet to come."""
        seconds = max(0.0, seconds)
        if step == self._step and not self._between:
            owed = self._owed.setdefault(step, {})
            owed[part] = owed.get(part, 0.0) + seconds
            return
        kind, gap = self._gaps.get(step, (self._kind, 0.0))
        moved = min(gap, seconds)
        self._parts[kind] -= moved
        self._parts[part] += moved
        self._gaps[step] = (kind, gap - moved)

    def _spend(self, until: float, part: str) -> None:
        passed = max(0.0, until - self._cursor)
        self._parts[part] += passed
        self._cursor += passed
