"""Everything that the panel shows of one run, kept up to date from its events."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from cnai.core.clock import Clock, SystemClock
from cnai.core.events import (
    AttemptStarted,
    CheckpointRejected,
    CheckpointSaved,
    EvaluationDone,
    Event,
    Finding,
    LayoutChanged,
    RankFailed,
    RankLost,
    Rebalanced,
    StepDone,
)
from cnai.core.runfolder import EventFollower, RunFolder
from cnai.core.vectors import LayersMeasured, VectorFollower
from cnai.monitor.fold import ProgressFold
from cnai.monitor.goodput import GoodputFold
from cnai.monitor.panel.grid import LayerGrid, RankGrid
from cnai.monitor.panel.table import StepTable
from cnai.monitor.progress import RunProgress

_READ_EVERY_SECONDS = 0.25
_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something in the life of a run that is worth a line: a start, a loss, a new layout."""

    time_unix: float
    step: int
    what: str


class RunRecord:
    """The record of a run. Its methods may be called from any thread, one at a time.

    Hold `lock` around everything that is to be of one moment.
    """

    def __init__(self, run: RunFolder, clock: Clock | None = None) -> None:
        self.run = run
        self.lock = threading.RLock()
        self.table = StepTable()
        self.grid = RankGrid()
        self.layers = LayerGrid()
        self.findings: deque[Finding] = deque(maxlen=_MOST)
        self.checkpoints: deque[CheckpointSaved] = deque(maxlen=_MOST)
        self.evaluations: deque[EvaluationDone] = deque(maxlen=_MOST)
        self.incidents: deque[Incident] = deque(maxlen=_MOST)
        self.found = 0
        """Findings so far, those that `findings` has dropped included."""
        self.loaded = False
        self._clock = clock or SystemClock()
        self._events = EventFollower(run)
        self._vectors = VectorFollower(run.layers_file)
        self._fold = ProgressFold(run.name)
        self._goodput = GoodputFold()
        self._attempt: int | None = None
        self._layers_attempt = -1
        self._read_at = 0.0

    def refresh(self) -> None:
        """Read what is new, unless that was done a moment ago."""
        with self.lock:
            now = self._clock.monotonic()
            if self.loaded and now - self._read_at < _READ_EVERY_SECONDS:
                return
            self._read_at = now
            for event in self._events.read():
                self._add(event)
            for layers in self._vectors.read():
                self._add_layers(layers)
            self.loaded = True

    def progress(self) -> RunProgress:
        """Return where the run stands, as of the last `refresh`."""
        with self.lock:
            return self._fold.progress(self._clock.now())

    def _add(self, event: Event) -> None:
        self._fold.add(event)
        self._goodput.add(event)
        match event:
            case StepDone():
                self._add_step(event)
            case AttemptStarted():
                self._begin(event)
            case Finding():
                self.findings.append(event)
                self.found += 1
            case CheckpointSaved():
                self.checkpoints.append(event)
            case EvaluationDone():
                self.evaluations.append(event)
            case _:
                self._add_incident(event)

    def _add_step(self, event: StepDone) -> None:
        if self._attempt is not None and event.attempt < self._attempt:
            return
        if self._attempt is not None and event.attempt > self._attempt:
            self._forget_after(event.step - 1)
        self._attempt = event.attempt
        self.grid.add(event)
        if event.step > self.table.last_step:
            self.table.append(event, self._goodput.goodput())
        else:
            self.table.add_rank(event)

    def _add_layers(self, record: LayersMeasured) -> None:
        """Take what the newest attempt measured; what it repeats takes the place of the older."""
        if record.attempt < self._layers_attempt:
            return
        if record.attempt > self._layers_attempt:
            self.layers.forget_after(record.step - 1)
            self._layers_attempt = record.attempt
        self.layers.add(record)

    def _begin(self, event: AttemptStarted) -> None:
        if self._attempt is not None and event.attempt <= self._attempt:
            return  # its steps were read first
        self._attempt = event.attempt
        self._forget_after(event.resumed_step)
        start = f"{event.ranks} ranks started as {event.layout}"
        back = f", from step {event.resumed_step}" if event.resumed_step else ""
        self._tell(event, event.resumed_step, start + back)

    def _add_incident(self, event: Event) -> None:
        match event:
            case RankLost():
                self._tell(
                    event, event.step, f"rank {event.rank} lost, exit code {event.exit_code}"
                )
            case RankFailed():
                self._tell(event, None, f"rank {event.rank} failed: {event.message}")
            case LayoutChanged():
                self._tell(event, event.step, f"{event.before} -> {event.after}: {event.reason}")
            case Rebalanced():
                what = f"{event.moved} moved from {event.before} to {event.after}"
                self._tell(event, event.step, f"{what}: {event.reason}")
            case CheckpointRejected():
                self._tell(event, None, f"checkpoint passed over: {event.reason}")

    def _tell(self, event: Event, step: int | None, what: str) -> None:
        here = self.table.last_step if step is None else step
        self.incidents.append(Incident(time_unix=event.time_unix, step=here, what=what))

    def _forget_after(self, step: int) -> None:
        self.table.forget_after(step)
        self.grid.forget_after(step)
        for kept in [one for one in self.evaluations if one.step > step]:
            self.evaluations.remove(kept)
