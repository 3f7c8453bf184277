"""Which units may take the smaller form: each is tried alone, then as many as the limit allows.

The divergence on calibration text stands for the loss: it is what the mean loss grows by when the
text is as the exact model expects, and it varies far less from text to text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cnai.compress.decoder.trial import Trial
from cnai.compress.decoder.units import Unit
from cnai.compress.folder.report import UnitReport
from cnai.compress.folder.treatment import Form, Treatment

Choice = Mapping[str, Treatment]
"""What becomes of the parameters of a unit, by our names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A unit with its two forms.

    Attributes:
        kl: Divergence when it alone takes the small form; None = not measured.
    """

    unit: Unit
    form: Form
    small: Choice
    safe: Choice
    kl: float | None = None

    def report(self, *, kept: bool) -> UnitReport:
        """Return it as the report tells it."""
        return UnitReport(unit=self.unit.name, form=self.form, kl=self.kl, kept=kept)


def ranked(
    trial: Trial,
    options: Sequence[Option],
    deadline: float,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Option, ...]:
    """Return the options from the one that costs least; those not measured in time come last.

    Args:
        trial: The exact model; it is exact again after.
        deadline: Value of `time.monotonic` after which nothing more is measured.
    """
    measured, left = [], []
    for done, option in enumerate(options):
        progress(done, len(options))
        if time.monotonic() > deadline:
            left.append(option)
            continue
        trial.use(option.small)
        kl = trial.reference.divergence(trial.logits(layer=option.unit.layer)).kl
        trial.undo(option.small)
        measured.append(replace(option, kl=kl))
    progress(len(options), len(options))
    # A divergence that is no number must not pass for the smallest.
    measured.sort(key=lambda one: one.kl if one.kl is not None and one.kl >= 0 else float("inf"))
    return (*measured, *left)


def admitted(trial: Trial, order: Sequence[Option], limit: float) -> int:
    """Return how many of the first options may take the small form, the others the safe one.

    Args:
        order: As `ranked` returns them.
        limit: Largest divergence in nats.
    """
    usable = sum(option.kl is not None for option in order)
    for option in order:
        trial.use(option.safe)
    now, low, high = 0, 0, usable
    middle = usable
    while low < high:
        now = _move(trial, order, now, middle)
        if trial.reference.divergence(trial.logits()).kl <= limit:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    for option in order:
        trial.undo({**option.small, **option.safe})
    return low


def _move(trial: Trial, order: Sequence[Option], now: int, then: int) -> int:
    for option in order[now:then]:
        trial.use(option.small)
    for option in order[then:now]:
        trial.use(option.safe)
    return then
