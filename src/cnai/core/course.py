"""What reactions have changed for the steps of a run: the learning rate, and which data comes.

It is read from the events, so it survives whatever ends the processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from cnai.core.events import Event, Reacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Changes that hold from a step on.

    Attributes:
        rates: Steps done, and the factor of the learning rate from there on.
        skips: Steps done, and the steps of data that are passed over from there on.
    """

    rates: tuple[tuple[int, float], ...] = ()
    skips: tuple[tuple[int, int], ...] = ()

    def rate_factor(self, step: int) -> float:
        """Return what the learning rate of a step (from 0) is multiplied with."""
        return prod(factor for first, factor in self.rates if step >= first)

    def data_step(self, step: int) -> int:
        """Return the step whose rows a step (from 0) reads; no rows come twice."""
        return step + sum(steps for first, steps in self.skips if step >= first)


def standing(events: Iterable[Event]) -> list[Reacted]:
    """Return the reactions that were not taken back, the oldest first."""
    reacted = [event for event in events if isinstance(event, Reacted)]
    undone = {event.undoes for event in reacted}
    return [e for e in reacted if e.undoes is None and e.number not in undone]


def course_of(events: Iterable[Event]) -> Course:
    """Return the course of a run after all its reactions."""
    held = standing(events)
    return Course(
        rates=tuple((e.from_step, e.rate_factor) for e in held if e.rate_factor != 1.0),
        skips=tuple((e.from_step, e.data_steps) for e in held if e.data_steps),
    )
