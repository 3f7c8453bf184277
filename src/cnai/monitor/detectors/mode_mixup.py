"""Training goes on in evaluation mode: dropout is off, and norms use old statistics."""

from __future__ import annotations

from typing import ClassVar

from cnai.core.events import Event, Finding, RankMeasured
from cnai.monitor.detectors.speaker import Speaker


class ModeMixup(Speaker):
    """Speaks when modules left training mode during the run, or none was ever in it.

    Some that are in evaluation mode all along are frozen norms, and healthy.
    """

    name: ClassVar[str] = "mode_mixup"

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[int, float] = {}

    def _look(self, event: Event) -> Finding | None:
        if not isinstance(event, RankMeasured) or event.training is None:
            return None
        first = self._first.setdefault(event.rank, event.training)
        if event.step == 0 or not (event.training < first or event.training == 0):
            return None
        return self._found(
            event,
            event.step,
            f"{1 - event.training:.0%} of the modules with two modes are in that of evaluation",
            f"{1 - first:.0%} at the start of rank {event.rank}",
            advice=("call model.train() after each evaluation",),
            rank=event.rank,
        )
