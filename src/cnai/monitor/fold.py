"""Fold the events of a run into its progress, one at a time and with bounded memory.

A step that an attempt repeats after a resume counts once: what an earlier attempt did beyond the
step from which the newest resumed is forgotten.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    EvaluationDone,
    Event,
    Finding,
    RankFailed,
    RankLost,
    RankReady,
    Rebalanced,
    RunEnded,
    StepDone,
)
from cnai.core.serving import Histogram
from cnai.monitor.goodput import GoodputFold
from cnai.monitor.history import LossHistory
from cnai.monitor.progress import STEP_BOUNDS_SECONDS, RankRow, RunProgress, RunState

WINDOW_STEPS = 20
_FINDINGS = 200
_MOVES = 50


@dataclass(slots=True)
class _Step:
    """A step as the slowest of its ranks saw it."""

    step: int
    tokens: int
    seconds: float
    data_wait_seconds: float


class ProgressFold:
    """Takes events in order of time; gives the progress at any moment."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._state = RunState.STARTING
        self._attempt: int | None = None
        self._steps: int | None = None
        self._layout: str | None = None
        self._last: StepDone | None = None
        self._step = 0
        self._first_loss: float | None = None
        self._best_loss: float | None = None
        self._window: deque[_Step] = deque(maxlen=WINDOW_STEPS)
        self._history = LossHistory()
        self._rows: dict[int, RankRow] = {}
        self._executed = 0
        self._tokens = 0
        self._histogram = Histogram.empty(STEP_BOUNDS_SECONDS)
        self._lost: dict[int, set[int]] = {}
        self._losses = 0
        self._checkpoint: CheckpointSaved | None = None
        self._findings: deque[Finding] = deque(maxlen=_FINDINGS)
        self._validation: EvaluationDone | None = None
        self._noise_scale: float | None = None
        self._reason = ""
        self._goodput = GoodputFold()
        self._moves: deque[Rebalanced] = deque(maxlen=_MOVES)
        self._moves_made: Counter[str] = Counter()

    def add(self, event: Event) -> None:
        """Take one event; kinds that say nothing about progress are passed over."""
        self._goodput.add(event)
        match event:
            case StepDone():
                self._add_step(event)
            case AttemptStarted():
                self._start(event)
            case RankReady():
                self._touch(event.rank, event.time_unix)
            case CheckpointSaved():
                self._checkpoint = event
            case EvaluationDone():
                self._validation = event
            case RankLost() | RankFailed():
                self._lose(event)
            case Finding():
                self._findings.append(event)
            case Rebalanced():
                self._moves.append(event)
                self._moves_made[event.moved] += 1
            case RunEnded():
                known = event.outcome in set(RunState)
                self._state = RunState(event.outcome) if known else RunState.FAILED
                self._reason = event.reason

    def progress(self, now_unix: float) -> RunProgress:
        """Return where the run stands; `now_unix` counts for the ages alone."""
        last = self._last
        pace = median(step.seconds for step in self._window) if self._window else None
        return RunProgress(
            run=self._run,
            state=self._state,
            step=self._step,
            steps=self._steps,
            loss=last.loss if last else None,
            first_loss=self._first_loss,
            best_loss=self._best_loss,
            grad_norm=last.grad_norm if last else None,
            learning_rate=last.learning_rate if last else None,
            tokens_per_second=self._rate(),
            step_seconds=pace,
            data_wait_share=self._data_wait_share(),
            steps_executed=self._executed,
            tokens_executed=self._tokens,
            step_histogram=self._histogram,
            ranks=tuple(
                replace(row, age_seconds=max(0.0, now_unix - row.last_event_unix))
                for _, row in sorted(self._rows.items())
            ),
            attempt=self._attempt,
            layout=self._layout,
            lost_ranks=tuple(sorted(self._lost[max(self._lost)])) if self._lost else (),
            ranks_lost=self._losses,
            checkpoint_step=self._checkpoint.step if self._checkpoint else None,
            checkpoint_unix=self._checkpoint.time_unix if self._checkpoint else None,
            eta_seconds=self._eta(pace),
            findings=tuple(self._findings),
            loss_history=self._history.points(),
            reason=self._reason,
            validation_loss=self._validation.loss if self._validation else None,
            validation_step=self._validation.step if self._validation else None,
            noise_scale=self._noise_scale,
            goodput=self._goodput.goodput(),
            moves=tuple(self._moves),
            moves_made=tuple(sorted(self._moves_made.items())),
        )

    def _start(self, event: AttemptStarted) -> None:
        self._steps = event.steps
        self._layout = event.layout
        if self._last and self._last.attempt == event.attempt:
            return  # its steps were read first; they count already
        went_on = self._attempt is not None and not self._state.is_final
        self._state = RunState.RECOVERING if went_on else RunState.STARTING
        self._attempt = event.attempt
        self._reason = ""
        self._forget_after(event.resumed_step)
        self._rows = {rank: row for rank, row in self._rows.items() if rank < event.ranks}

    def _forget_after(self, step: int) -> None:
        self._step = min(self._step, step)
        self._window = deque((one for one in self._window if one.step <= step), maxlen=WINDOW_STEPS)
        self._history.forget_after(step)
        if self._validation is not None and self._validation.step > step:
            self._validation = None

    def _add_step(self, event: StepDone) -> None:
        if self._attempt is not None and event.attempt < self._attempt:
            return
        if self._attempt is not None and event.attempt > self._attempt:
            self._forget_after(event.step - 1)
        self._attempt = event.attempt
        self._row(event)
        if not self._state.is_final:
            self._state = RunState.TRAINING
        if event.step > self._step:
            self._new_step(event)
            return
        for one in self._window:
            if one.step == event.step:
                one.seconds = max(one.seconds, event.step_seconds)
                one.data_wait_seconds = max(one.data_wait_seconds, event.data_wait_seconds)

    def _new_step(self, event: StepDone) -> None:
        """Take a step from the first rank that reports it; loss and norm are the same on all."""
        self._step = event.step
        self._last = event
        if event.noise_scale is not None:
            self._noise_scale = event.noise_scale
        self._executed += 1
        self._tokens += event.tokens
        self._histogram = self._histogram.with_value(event.step_seconds)
        self._window.append(
            _Step(event.step, event.tokens, event.step_seconds, event.data_wait_seconds)
        )
        self._history.add(event.step, event.loss)
        if self._first_loss is None:
            self._first_loss = event.loss
        if math.isfinite(event.loss):
            best = self._best_loss
            self._best_loss = event.loss if best is None else min(best, event.loss)

    def _row(self, event: StepDone) -> None:
        before = self._rows.get(event.rank)
        ratio = event.update_ratio
        if ratio is None and before is not None:
            ratio = before.update_ratio
        waited = before.data_wait_total_seconds if before else 0.0
        self._rows[event.rank] = RankRow(
            rank=event.rank,
            step=event.step,
            step_seconds=event.step_seconds,
            data_wait_seconds=event.data_wait_seconds,
            update_ratio=ratio,
            data_wait_total_seconds=waited + event.data_wait_seconds,
            last_event_unix=event.time_unix,
            age_seconds=0.0,
            rows=event.rows,
            compute_seconds=event.compute_seconds if event.stage_seconds else None,
            wait_seconds=event.wait_seconds,
            compute_total_seconds=event.compute_seconds
            + (before.compute_total_seconds if before else 0.0),
            wait_total_seconds=(event.wait_seconds or 0.0)
            + (before.wait_total_seconds if before else 0.0),
        )

    def _touch(self, rank: int, time_unix: float) -> None:
        row = self._rows.get(rank) or RankRow(
            rank=rank,
            step=0,
            step_seconds=0.0,
            data_wait_seconds=0.0,
            update_ratio=None,
            data_wait_total_seconds=0.0,
            last_event_unix=time_unix,
            age_seconds=0.0,
        )
        self._rows[rank] = replace(row, last_event_unix=time_unix)

    def _lose(self, event: RankLost | RankFailed) -> None:
        ranks = self._lost.setdefault(event.attempt, set())
        if event.rank not in ranks:
            ranks.add(event.rank)
            self._losses += 1
        if not self._state.is_final:
            self._state = RunState.RECOVERING

    def _rate(self) -> float | None:
        rates = [one.tokens / one.seconds for one in self._window if one.seconds > 0]
        return median(rates) if rates else None

    def _data_wait_share(self) -> float | None:
        seconds = sum(one.seconds for one in self._window)
        if seconds <= 0:
            return None
        return min(1.0, sum(one.data_wait_seconds for one in self._window) / seconds)

    def _eta(self, pace: float | None) -> float | None:
        if self._state.is_final or pace is None or self._steps is None:
            return None
        return pace * max(0, self._steps - self._step)


def fold(events: Iterable[Event], *, run: str, now_unix: float) -> RunProgress:
    """Return the progress after some events."""
    state = ProgressFold(run)
    for event in events:
        state.add(event)
    return state.progress(now_unix)
