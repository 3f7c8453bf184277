"""What a flow tells while it works; `cli` draws it, tests collect it."""

from __future__ import annotations

from typing import Protocol

from cnai.monitor import RunProgress


class Listener(Protocol):
    """Hears of stages, progress and remarkable things. Must return quickly."""

    def stage(self, name: str, *, skipped: bool = False) -> None:
        """Tell that a stage begins, or that its result of an earlier command is taken."""
        ...

    def note(self, text: str) -> None:
        """Tell something worth a line."""
        ...

    def warn(self, text: str) -> None:
        """Tell something that the user should look at."""
        ...

    def fraction(self, what: str, done: float) -> None:
        """Tell how far a stage is, 0 to 1."""
        ...

    def training(self, progress: RunProgress) -> None:
        """Tell how training stands; called about four times a second."""
        ...


class Silence:
    """Hears everything and says nothing."""

    def stage(self, name: str, *, skipped: bool = False) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""

    def warn(self, text: str) -> None:
        """Ignore."""

    def fraction(self, what: str, done: float) -> None:
        """Ignore."""

    def training(self, progress: RunProgress) -> None:
        """Ignore."""
