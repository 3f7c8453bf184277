"""What most detectors have in common: they speak once an attempt, in the same form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from cnai.core.events import AttemptStarted, Event, Finding, Repair
from cnai.core.vectors import LayersMeasured

Values = npt.NDArray[np.float64]


class Speaker:
    """Speaks once an attempt; begins anew with the next one."""

    name: ClassVar[str] = ""

    def __init__(self) -> None:
        self._is_silent = False
        self._resumed = 0
        self._asked = 0
        self._among = 0

    def update(self, event: Event) -> Finding | None:
        """Look at an event; return a finding when it completes one."""
        if isinstance(event, AttemptStarted):
            self._is_silent = False
            self._resumed, self._asked = event.resumed_step, event.steps
            self._among = event.ranks
            self._begin()
            return None
        if self._is_silent:
            return None
        found = self._look(event)
        self._is_silent = found is not None
        return found

    def _begin(self) -> None:
        """Forget what belongs to the attempt before."""

    def _look(self, event: Event) -> Finding | None:
        """Look at an event of the attempt, until there is a finding."""
        raise NotImplementedError

    def _found(
        self,
        event: Event,
        step: int | None,
        message: str,
        *evidence: str,
        advice: Iterable[str | Repair] = (),
        critical: bool = False,
        rank: int | None = None,
        layer: str | None = None,
    ) -> Finding:
        return Finding(
            time_unix=event.time_unix,
            detector=self.name,
            severity="critical" if critical else "warning",
            message=message,
            step=step,
            rank=rank,
            layer=layer,
            evidence=evidence,
            repairs=tuple(Repair(title=one) if isinstance(one, str) else one for one in advice),
        )


class Run:
    """Counts how often in a row something was seen."""

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self.count = 0

    def is_long(self, seen: bool) -> bool:
        """Take whether it was seen; tell whether that was often enough in a row."""
        self.count = self.count + 1 if seen else 0
        return self.count >= self._needed


def matrices_of(record: LayersMeasured, group: str) -> tuple[tuple[str, ...], Values]:
    """Return the matrices of a record and their norms, in the order of the model."""
    norms = dict(zip(record.names(group), record.group(group).tolist(), strict=True))
    names = tuple(name for name, _ in record.columns.matrices if name in norms)
    return names, np.array([norms[name] for name in names])


def inner_matrices(record: LayersMeasured) -> list[tuple[str, float]]:
    """Return the matrices between embedding and head, with the root mean square of each gradient.

    An embedding sees few of its rows in a step, so its gradient is of another size; what is frozen
    has none.
    """
    sizes = dict(record.columns.matrices)
    embeddings = {f"{name}.weight" for name in record.names("rows_used")}
    pairs = zip(*matrices_of(record, "gradient"), strict=True)
    return [
        (name, float(norm) / sizes[name] ** 0.5)
        for name, norm in pairs
        if name not in embeddings and norm > 0
    ]


def update_ratios(record: LayersMeasured) -> tuple[tuple[str, ...], Values]:
    """Return the matrices and how large the update of each was against its weights."""
    names, updates = matrices_of(record, "update")
    _, weights = matrices_of(record, "weight")
    with np.errstate(divide="ignore", invalid="ignore"):
        return names, np.where(weights > 0, updates / weights, np.nan)
