"""Events of a made-up run, and a clock that stands still."""

from __future__ import annotations

from cnai.core.events import (
    AttemptStarted,
    CheckpointSaved,
    EvaluationDone,
    RankLost,
    RunEnded,
    StepDone,
)


class FakeClock:
    """A clock that moves when somebody sleeps, and does something each time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.time = now
        self.on_sleep: list[object] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.on_sleep:
            self.on_sleep.pop(0)()


def started(attempt: int = 0, *, resumed: int = 0, at: float = 0.0, ranks: int = 2):
    return AttemptStarted(
        time_unix=at, attempt=attempt, ranks=ranks, steps=100, plan_digest="d",
        layout="dp2 x tp1 x pp1", resumed_step=resumed,
    )  # fmt: skip


def step(number: int, *, rank: int = 0, attempt: int = 0, **changes):
    fields = {
        "time_unix": float(number), "rank": rank, "attempt": attempt, "step": number,
        "loss": 5.0 - 0.01 * number, "grad_norm": 1.0, "update_ratio": None,
        "learning_rate": 1e-3, "tokens": 1000, "step_seconds": 0.5, "data_wait_seconds": 0.1,
    }  # fmt: skip
    return StepDone(**(fields | changes))


def lost(rank: int = 1, *, attempt: int = 0, at: float = 50.0):
    return RankLost(time_unix=at, rank=rank, attempt=attempt, exit_code=-9, step=3, log_tail="")


def saved(number: int, *, at: float = 40.0):
    return CheckpointSaved(time_unix=at, step=number, path="x", size_bytes=1, seconds=0.1)


def evaluated(number: int, loss: float = 4.5, *, attempt: int = 0):
    return EvaluationDone(
        time_unix=float(number), attempt=attempt, step=number, loss=loss, sequences=8, seconds=0.1
    )


def ended(outcome: str, *, at: float = 99.0, reason: str = ""):
    return RunEnded(time_unix=at, outcome=outcome, step=100, seconds=9.0, reason=reason)
