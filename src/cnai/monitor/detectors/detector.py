"""What a detector is, and how several are run so that none can stop the watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cnai.core.events import Event, Finding
from cnai.monitor.detectors.causes import Resolver


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Event):
    """Time passes; lets a detector notice that nothing happens. Never written to a file."""


class Detector(Protocol):
    """Looks at one event after the other and reports what is wrong.

    A detector keeps its own bounded memory, waits for enough steps before it speaks, and having
    spoken stays silent for a while, so that one fault gives one finding.
    """

    name: ClassVar[str]

    def update(self, event: Event) -> Finding | None:
        """Look at an event; return a finding when it completes one."""
        ...


class Watch:
    """Runs detectors over the events of a run.

    A detector that throws is switched off and reports that, once, as a finding.
    """

    def __init__(self, detectors: Sequence[Detector]) -> None:
        self._detectors = list(detectors)
        self._resolver = Resolver()

    @classmethod
    def of(cls, kinds: Sequence[Callable[[], Detector]]) -> Watch:
        """Make fresh detectors."""
        return cls([kind() for kind in kinds])

    def update(self, event: Event) -> list[Finding]:
        """Show an event to every detector and return what they find."""
        self._resolver.update(event)
        found = [self._ask(detector, event) for detector in tuple(self._detectors)]
        return [self._resolver.explained(finding) for finding in found if finding is not None]

    def _ask(self, detector: Detector, event: Event) -> Finding | None:
        try:
            return detector.update(event)
        except Exception as error:  # noqa: BLE001 - whatever a detector throws becomes a finding
            self._detectors.remove(detector)
            return Finding(
                time_unix=event.time_unix,
                detector=detector.name,
                severity="warning",
                message=f"detector {detector.name} is off: {type(error).__name__}: {error}",
                evidence=(f"while it looked at {type(event).__name__}",),
            )
