"""Loss or gradient norm is NaN or infinite."""

from __future__ import annotations

import math
import re
from typing import ClassVar

from cnai.core.events import AttemptStarted, Event, Finding, RankFailed, Repair, StepDone

_REPORTED = re.compile(r"\b(loss|norm) [-+]?(nan|inf)\b", re.IGNORECASE)
_FIRST = re.compile(r"first in the [a-z ]+ `([^`]+)`")

REPAIRS = (
    Repair(title="lower train.learning_rate and clip the gradient",
           spec_patch={"train.clip_norm": 1.0}),
    Repair(title="compute in float32", spec_patch={"train.precision": "float32"}),
)  # fmt: skip


class NonFinite:
    """Speaks once an attempt, at the first step that is not finite.

    The training loop refuses such a step and reports it as its own failure; that counts too.
    """

    name: ClassVar[str] = "nonfinite"

    def __init__(self) -> None:
        self._spoke = False

    def update(self, event: Event) -> Finding | None:
        """Look at losses and norms."""
        if isinstance(event, AttemptStarted):
            self._spoke = False
        message = _message(event)
        if message is None or self._spoke:
            return None
        self._spoke = True
        return Finding(
            time_unix=event.time_unix,
            detector=self.name,
            severity="critical",
            message=message,
            step=event.step if isinstance(event, StepDone) else None,
            rank=event.rank if isinstance(event, RankFailed) else None,
            layer=_layer(message),
            repairs=REPAIRS,
        )


def _layer(message: str) -> str | None:
    """Return the module that the loop has named."""
    found = _FIRST.search(message)
    return found[1] if found else None


def _message(event: Event) -> str | None:
    if isinstance(event, RankFailed) and _REPORTED.search(event.message):
        return event.message
    if not isinstance(event, StepDone):
        return None
    if math.isfinite(event.loss) and math.isfinite(event.grad_norm):
        return None
    return f"loss {event.loss:g} with gradient norm {event.grad_norm:g} at step {event.step}"
