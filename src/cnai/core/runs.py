"""How far a run is, read off its events; and the runs in a folder."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cnai.core.events import AttemptStarted, Event, RunEnded, StepDone
from cnai.core.runfolder import RunFolder, read_events


class RunStatus(StrEnum):
    """What a run is doing, or how it ended."""

    NEW = "new"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    BROKEN_OFF = "broken off"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run at this moment.

    Attributes:
        status: `broken off` when the run neither ended nor has a living process.
        step: Last step that was reported; 0 before the first.
        steps: Steps asked for; 0 before the first attempt.
        loss: Loss of that step in nats, None before the first.
        attempts: How often the ranks were started.
        started_unix: When they were started first; None before.
        layout: How the model lies over ranks; empty before the first attempt.
    """

    name: str
    path: str
    status: RunStatus
    step: int = 0
    steps: int = 0
    loss: float | None = None
    attempts: int = 0
    started_unix: float | None = None
    layout: str = ""


def run_state(run: RunFolder) -> RunState:
    """Read how far a run is."""
    return state_of(run, read_events(run), alive=run.owner() is not None)


def state_of(run: RunFolder, events: Iterable[Event], *, alive: bool) -> RunState:
    """Work out a run's state from its events.

    Args:
        run: The run, for its name.
        events: What happened, ordered by time.
        alive: Whether a process works on the run.
    """
    attempts: list[AttemptStarted] = []
    step: StepDone | None = None
    end: RunEnded | None = None
    for event in events:
        match event:
            case AttemptStarted():
                attempts.append(event)
                end = None
            case StepDone():
                step = event
            case RunEnded():
                end = event
    return RunState(
        name=run.name,
        path=str(run.root),
        status=_status(end, alive=alive, begun=bool(attempts)),
        step=step.step if step else 0,
        loss=step.loss if step else None,
        attempts=len(attempts),
        steps=attempts[-1].steps if attempts else 0,
        started_unix=attempts[0].time_unix if attempts else None,
        layout=attempts[-1].layout if attempts else "",
    )


def list_runs(folder: Path) -> list[RunState]:
    """Return the state of every run in a folder, the newest last; none when it is absent."""
    if not folder.is_dir():
        return []
    runs = [RunFolder(path) for path in folder.iterdir() if not path.name.startswith(".")]
    states = [run_state(run) for run in runs if run.events.is_dir()]
    return sorted(states, key=lambda state: (state.started_unix or math.inf, state.name))


def _status(end: RunEnded | None, *, alive: bool, begun: bool) -> RunStatus:
    if alive:
        return RunStatus.RUNNING
    if end is not None:
        known = {one.value for one in RunStatus}
        return RunStatus(end.outcome) if end.outcome in known else RunStatus.FAILED
    return RunStatus.BROKEN_OFF if begun else RunStatus.NEW
