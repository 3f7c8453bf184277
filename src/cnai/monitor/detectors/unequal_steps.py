"""A rank has done fewer steps than the others."""

from __future__ import annotations

from typing import ClassVar

from cnai.core.events import Event, Finding, RunEnded, StepDone
from cnai.monitor.detectors.speaker import Speaker

STEPS = 5
SECONDS = 10.0
"""Silence of a rank that is behind; until then its events may just not have been read yet."""


class UnequalSteps(Speaker):
    """Speaks when a rank is five steps and 10 s behind, or at the end of the run at all."""

    name: ClassVar[str] = "unequal_steps"

    def __init__(self) -> None:
        super().__init__()
        self._steps: dict[int, int] = {}
        self._heard: dict[int, float] = {}

    def _begin(self) -> None:
        self._steps.clear()
        self._heard.clear()

    def _look(self, event: Event) -> Finding | None:
        if isinstance(event, StepDone):
            self._steps[event.rank] = event.step
            self._heard[event.rank] = event.time_unix
        is_end = isinstance(event, RunEnded) and event.outcome == "done"
        if len(self._steps) < 2 or not (is_end or isinstance(event, StepDone)):
            return None
        behind = min(self._steps, key=lambda rank: self._steps[rank])
        most = max(self._steps.values())
        silence = event.time_unix - self._heard[behind]
        if most - self._steps[behind] < (1 if is_end else STEPS):
            return None
        if not is_end and silence < SECONDS:
            return None
        return self._found(
            event,
            most,
            f"rank {behind} is at step {self._steps[behind]}, others at step {most}",
            advice=("look whether its data ended early, and how its loop ended",),
            critical=True,
            rank=behind,
        )
