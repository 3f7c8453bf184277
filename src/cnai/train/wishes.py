"""What others ask of a rank between two steps. Needs no torch."""

from __future__ import annotations

import signal
from dataclasses import dataclass

SAVE_SIGNAL = signal.SIGURG
"""Nobody else uses it, and it does nothing to a rank that does not listen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is to be done after the step.

    Attributes:
        stop: Save and leave.
        save: Save, and go on.
    """

    stop: bool = False
    save: bool = False


class Asked:
    """Hears SIGTERM, which asks to stop, and SAVE_SIGNAL; make it in the main thread."""

    def __init__(self) -> None:
        self._stop = self._save = False
        signal.signal(signal.SIGTERM, self._hear_stop)
        signal.signal(SAVE_SIGNAL, self._hear_save)

    def wishes(self) -> Wishes:
        """Return what was asked; a wish to save is told once."""
        save, self._save = self._save, False
        return Wishes(stop=self._stop, save=save)

    def _hear_stop(self, *_: object) -> None:
        self._stop = True

    def _hear_save(self, *_: object) -> None:
        self._save = True
