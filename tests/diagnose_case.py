"""A run folder with made-up events and logs."""

from __future__ import annotations

from pathlib import Path

from cnai.core.events import (
    AttemptStarted,
    Event,
    RankFailed,
    RankLost,
    RunEnded,
    StepDone,
)
from cnai.core.runfolder import RunFolder

TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 41, in step
    loss = model(batch)
  File "/usr/lib/python3.11/site-packages/torch/nn/functional.py", line 99, in embedding
    return torch.embedding(weight, input)
{error}
"""


def traceback(error: str) -> str:
    """Return the text of an uncaught exception."""
    return TRACEBACK.format(error=error)


class Case:
    """Builds a run."""

    def __init__(self, root: Path, ranks: int = 2) -> None:
        self.run = RunFolder.create(root / "demo")
        self._time = 100.0
        self.record(
            AttemptStarted(
                time_unix=self._time, attempt=0, ranks=ranks, steps=100, plan_digest="d",
                layout="dp2 x tp1 x pp1", resumed_step=0,
            )
        )  # fmt: skip

    def record(self, event: Event, name: str = "agent") -> None:
        with self.run.writer(name) as writer:
            writer.write(event)

    def log(self, rank: int, text: str) -> None:
        with self.run.rank_log(rank).open("a") as file:
            file.write(text)

    def lost(self, rank: int, exit_code: int, *, attempt: int = 0, tail: str = "") -> None:
        self._time += 1
        self.record(
            RankLost(
                time_unix=self._time, rank=rank, attempt=attempt, exit_code=exit_code, step=5,
                log_tail=tail,
            )
        )  # fmt: skip

    def failed(self, rank: int, code: str, message: str) -> None:
        self._time += 1
        event = RankFailed(
            time_unix=self._time, rank=rank, attempt=0, code=code, message=message, hint="do this"
        )
        self.record(event, f"rank-{rank}")

    def ended(self, outcome: str, reason: str = "") -> None:
        self._time += 1
        self.record(
            RunEnded(time_unix=self._time, outcome=outcome, step=9, seconds=1.0, reason=reason)
        )

    def step(self, rank: int, step: int, *, attempt: int = 0) -> None:
        self._time += 1
        event = StepDone(
            time_unix=self._time, rank=rank, attempt=attempt, step=step, loss=2.0, grad_norm=1.0,
            update_ratio=None, learning_rate=0.1, tokens=8, step_seconds=1.0,
            data_wait_seconds=0.0,
        )  # fmt: skip
        self.record(event, f"rank-{rank}")
