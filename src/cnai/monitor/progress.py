"""What a run has done so far: the record that panel, command line and metrics show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cnai.core.events import Finding, Rebalanced
from cnai.core.serving import Histogram
from cnai.monitor.goodput import NOTHING, Goodput

STEP_BOUNDS_SECONDS = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
"""Bounds of the histogram of step times."""


class RunState(StrEnum):
    """Where a run stands."""

    STARTING = "starting"
    TRAINING = "training"
    RECOVERING = "recovering"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_final(self) -> bool:
        """Whether nothing more is expected."""
        return self in {RunState.DONE, RunState.FAILED, RunState.STOPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """One rank, as of its last step.

    Attributes:
        update_ratio: The last that was measured; None before the first.
        data_wait_total_seconds: Waiting for data in all its steps, repeated ones included.
        last_event_unix: Time of its last event.
        age_seconds: Time since then.
        rows: Sequences that it took; None in runs of older versions, as the next two.
        compute_seconds: Time that it computed in its last step, without any wait.
        wait_seconds: Time that it waited for other ranks in its last step.
        compute_total_seconds: Computing in all its steps, repeated ones included.
        wait_total_seconds: Waiting for other ranks in all its steps.
    """

    rank: int
    step: int
    step_seconds: float
    data_wait_seconds: float
    update_ratio: float | None
    data_wait_total_seconds: float
    last_event_unix: float
    age_seconds: float
    rows: int | None = None
    compute_seconds: float | None = None
    wait_seconds: float | None = None
    compute_total_seconds: float = 0.0
    wait_total_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A run at one moment. None stands for what has not happened yet.

    Attributes:
        step: Steps done of `steps`; falls back when an attempt resumes from an earlier one.
        loss: Loss of the last step, nats; `best_loss` is the smallest so far.
        tokens_per_second: Median over the last 20 steps.
        step_seconds: Median over the last 20 steps.
        data_wait_share: Share of the last 20 steps in which the slowest rank waited for data.
        steps_executed: Steps done, repeated ones included; never falls.
        tokens_executed: Tokens of those steps.
        step_histogram: Times of those steps.
        attempt: The running attempt, from 0.
        lost_ranks: Ranks lost by the attempt that lost some last.
        ranks_lost: Losses over all attempts.
        eta_seconds: Time for the steps that are left at the present pace.
        findings: The newest 200 findings.
        loss_history: Step and loss of at most 512 steps, evenly thinned out, oldest first.
        reason: Why the run ended.
        validation_loss: Of the last measurement on validation sequences, after `validation_step`.
        noise_scale: Gradient noise scale in sequences, as of the last step that had one.
        goodput: What its time was spent on, up to its last event.
        moves: The newest 50 moves of work between ranks, with their reasons.
        moves_made: Moves so far, by what moved.
    """

    run: str
    state: RunState
    step: int
    steps: int | None
    loss: float | None
    first_loss: float | None
    best_loss: float | None
    grad_norm: float | None
    learning_rate: float | None
    tokens_per_second: float | None
    step_seconds: float | None
    data_wait_share: float | None
    steps_executed: int
    tokens_executed: int
    step_histogram: Histogram
    ranks: tuple[RankRow, ...]
    attempt: int | None
    layout: str | None
    lost_ranks: tuple[int, ...]
    ranks_lost: int
    checkpoint_step: int | None
    checkpoint_unix: float | None
    eta_seconds: float | None
    findings: tuple[Finding, ...]
    loss_history: tuple[tuple[int, float], ...]
    reason: str
    validation_loss: float | None = None
    validation_step: int | None = None
    noise_scale: float | None = None
    goodput: Goodput = NOTHING
    moves: tuple[Rebalanced, ...] = ()
    moves_made: tuple[tuple[str, int], ...] = ()
