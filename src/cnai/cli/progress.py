"""Progress on stderr.

On a terminal a bar, once the work takes more than two seconds; otherwise a line every ten seconds,
so that a log stays short and yet shows life.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cnai.cli.output import Output
from cnai.core.clock import Clock, SystemClock
from cnai.core.units import format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE_SECONDS = 2.0
LINE_EVERY_SECONDS = 10.0


class Progress:
    """How far some work is. Use it as a context manager and call `update`.

    Args:
        out: Where to write; nothing is drawn when it is quiet.
        label: What is done, a word or two.
        total: Steps in all, None when nobody knows.
        clock: Time; tests hold it still.
    """

    def __init__(
        self, out: Output, label: str, total: int | None = None, *, clock: Clock | None = None
    ) -> None:
        self._out, self._label, self._total = out, label, total
        self._clock = clock or SystemClock()
        self._begin = self._last_line = self._clock.monotonic()
        self._bar: Bar | None = None

    def update(self, done: int, note: str = "") -> None:
        """Tell how many steps are done, and something about the last, such as its loss."""
        if self._out.quiet:
            return
        now = self._clock.monotonic()
        if sys.stderr.isatty():
            if now - self._begin >= PATIENCE_SECONDS:
                self._draw(done, note)
        elif now - self._last_line >= LINE_EVERY_SECONDS:
            self._last_line = now
            self._out.note(self._line(done, note, now - self._begin))

    def _line(self, done: int, note: str, seconds: float) -> str:
        of = f"/{self._total}" if self._total else ""
        parts = [f"{self._label} {done}{of}", note]
        if self._total and done:
            parts.append(f"{format_seconds(seconds / done * (self._total - done))} left")
        return ", ".join(filter(None, parts))

    def _draw(self, done: int, note: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} {task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._bar.add_task(self._label, total=self._total, note=note)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, note=note)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
